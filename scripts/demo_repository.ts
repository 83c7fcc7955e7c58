import { join } from "node:path";
import { DEMO_MODELS } from "./demo_models.ts";
import { buildModelRepository } from "./model_repository.ts";

/** Directory of the demo's model repository. */
export const DEMO_REPOSITORY = join(import.meta.dirname!, "..", "examples", "model_repository");

/**
 * Builds the demo's repository, all of it in TypeScript. What is complete stays as it is, without a look at the network.
 * Returns the names of the models that are there.
 */
export async function buildDemoRepository(print: (line: string) => void): Promise<string[]> {
  return await buildModelRepository({
    models: DEMO_MODELS,
    directory: DEMO_REPOSITORY,
    language: "typescript",
    print,
  });
}
