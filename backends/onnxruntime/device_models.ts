import type { BackendModel, InstancePlacement, ModelInstance } from "../backend.ts";
import type { SessionDevice } from "./accelerators.ts";
import type { OnnxModel } from "./model.ts";

/** A model on all devices where its instances are: one session on each, opened with the first instance there. */
export class DeviceModels implements BackendModel {
  readonly #models = new Map<string, Promise<OnnxModel>>();
  readonly #open: (place: SessionDevice) => Promise<OnnxModel>;

  constructor(
    first: { readonly place: SessionDevice; readonly model: OnnxModel },
    open: (place: SessionDevice) => Promise<OnnxModel>,
  ) {
    this.#models.set(keyOf(first.place), Promise.resolve(first.model));
    this.#open = open;
  }

  async createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    const model = await this.#modelOn(placeOf(placement));
    return await model.createInstance(placement);
  }

  #modelOn(place: SessionDevice): Promise<OnnxModel> {
    const key = keyOf(place);
    const known = this.#models.get(key);
    if (known !== undefined) return known;
    const opening = this.#open(place);
    this.#models.set(key, opening);
    opening.catch(() => this.#models.delete(key));
    return opening;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const models = await Promise.allSettled(this.#models.values());
    this.#models.clear();
    for (const model of models) {
      if (model.status === "fulfilled") await model.value[Symbol.asyncDispose]();
    }
  }
}

/** Where an instance runs; all on the CPU share one session. */
function placeOf({ kind, device, deviceId }: InstancePlacement): SessionDevice {
  const family = device ?? (kind === "KIND_GPU" ? "cuda" : "cpu");
  return { device: family, deviceId: family === "cpu" ? 0 : deviceId };
}

function keyOf({ device, deviceId }: SessionDevice): string {
  return `${device} ${deviceId}`;
}
