import type { ModelSource } from "../backend.ts";
import { parseFlag, parseInteger } from "../onnx_setting_values.ts";

/** What the parameters of a configuration say. */
export interface TorchSettings {
  readonly inferenceMode: boolean;
  readonly optimizedExecution: boolean;
  readonly threads: { readonly intra: number; readonly inter: number };
  readonly jit: {
    readonly executor: boolean | undefined;
    readonly profiling: boolean | undefined;
    readonly fuser: boolean | undefined;
  };
}

/** @throws ServerError INVALID_ARG naming the parameter and its value. */
export function readTorchSettings(
  { config, name }: Pick<ModelSource, "config" | "name">,
): TorchSettings {
  const text = (key: string) => config.parameters[key]?.stringValue || undefined;
  const flag = (key: string): boolean | undefined => {
    const value = text(key);
    return value === undefined
      ? undefined
      : parseFlag(value, `parameter '${key}' of model '${name}'`);
  };
  const count = (key: string): number => {
    const value = text(key);
    return value === undefined ? 0 : parseInteger(value, `parameter '${key}' of model '${name}'`);
  };
  return {
    inferenceMode: flag("INFERENCE_MODE") ?? true,
    optimizedExecution: !(flag("DISABLE_OPTIMIZED_EXECUTION") ?? false),
    threads: { intra: count("INTRA_OP_THREAD_COUNT"), inter: count("INTER_OP_THREAD_COUNT") },
    jit: {
      executor: flag("ENABLE_JIT_EXECUTOR"),
      profiling: flag("ENABLE_JIT_PROFILING"),
      fuser: flag("ENABLE_TENSOR_FUSER"),
    },
  };
}
