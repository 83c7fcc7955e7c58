import type { TorchModule } from "../../ffi/pytorch/mod.ts";
import type { BackendLog, BackendModel, InstancePlacement, ModelInstance } from "../backend.ts";
import { TorchInstance, type TorchRunParts } from "./instance.ts";

/** Where a module runs: a CUDA device, the CPU, or where it was when it was saved. */
export type TorchPlace = number | "cpu" | "saved";

/** What a model is made of. */
export interface TorchModelParts {
  readonly run: TorchRunParts;
  readonly log: Pick<BackendLog, "info">;
  /** The module that was opened for the checks of the load. */
  readonly first: { readonly place: TorchPlace; readonly module: TorchModule };
  /** Instances on one device run on one module. */
  readonly sharesWeights: boolean;
  /** @throws ServerError when the model cannot run there. */
  placeOf(placement: InstancePlacement): TorchPlace;
  open(place: TorchPlace): Promise<TorchModule>;
}

/**
 * One loaded model. Each instance has a module of its own, since modules may keep something from run to run, unless
 * the configuration says that they share.
 */
export class TorchModel implements BackendModel {
  readonly #parts: TorchModelParts;
  readonly #shared = new Map<TorchPlace, Promise<TorchModule>>();
  #unused: TorchModelParts["first"] | undefined;

  constructor(parts: TorchModelParts) {
    this.#parts = parts;
    this.#unused = parts.first;
  }

  async createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    const { run, sharesWeights } = this.#parts;
    const place = this.#parts.placeOf(placement);
    if (sharesWeights) {
      const module = await this.#share(place, placement);
      return new TorchInstance(run, { placement, module, close: () => {} });
    }
    const module = await this.#open(place);
    return new TorchInstance(run, { placement, module, close: () => module[Symbol.dispose]() });
  }

  #share(place: TorchPlace, { name }: InstancePlacement): Promise<TorchModule> {
    const shared = this.#shared.get(place);
    if (shared !== undefined) {
      this.#parts.log.info(`Reusing TorchScript model for instance '${name}'`);
      return shared;
    }
    const opening = this.#open(place);
    this.#shared.set(place, opening);
    // The next instance may have more luck.
    opening.catch(() => this.#shared.delete(place));
    return opening;
  }

  async #open(place: TorchPlace): Promise<TorchModule> {
    const unused = this.#unused;
    if (unused?.place !== place) return await this.#parts.open(place);
    this.#unused = undefined;
    return unused.module;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#unused?.module[Symbol.dispose]();
    this.#unused = undefined;
    for (const each of await Promise.allSettled(this.#shared.values())) {
      if (each.status === "fulfilled") each.value[Symbol.dispose]();
    }
  }
}
