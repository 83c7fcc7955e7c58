import type { Model } from "./model.ts";
import type { RepositoryModel } from "./model_repository.ts";

/** Loads a version that keeps what its model was read from until it is freed; a failed load keeps nothing. */
export async function loadHeld(
  source: RepositoryModel,
  load: () => Promise<Model>,
): Promise<Model> {
  const { hold } = source;
  if (hold === undefined) return await load();
  hold.retainLoaded();
  try {
    const model = await load();
    model.source = hold;
    return model;
  } catch (reason) {
    await hold.releaseLoaded();
    throw reason;
  }
}
