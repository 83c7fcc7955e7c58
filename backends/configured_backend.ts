import type {
  Backend,
  BackendModel,
  InstancePlacement,
  ModelInstance,
  ModelSource,
} from "./backend.ts";
import { readNumberParameter } from "./model_parameters.ts";
import { pause, SYSTEM_TIMERS } from "./pause.ts";

/** Makes the instances of one model. */
export type CreateInstance = (placement: InstancePlacement) => ModelInstance;

/**
 * A backend whose models are nothing but their configuration: no file is opened, nothing can be completed. `open`
 * checks the configuration and throws ServerError. The parameter `creation_delay_sec` makes loading take that long.
 */
export function createConfiguredBackend(
  name: string,
  open: (source: ModelSource) => CreateInstance,
): Backend {
  return {
    name,
    preference: { kind: "KIND_CPU", count: 1 },
    autoComplete: () => Promise.resolve(),
    async openModel(source): Promise<BackendModel> {
      const create = open(source);
      const delayMs = readNumberParameter(source.config, "creation_delay_sec") * 1000;
      if (delayMs > 0) await pause(delayMs, { timers: SYSTEM_TIMERS, signals: [] });
      return {
        createInstance: (placement) => Promise.resolve(create(placement)),
        [Symbol.asyncDispose]: () => Promise.resolve(),
      };
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}
