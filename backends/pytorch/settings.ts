import type { TorchRunSwitches } from "../../ffi/pytorch/mod.ts";
import type { BackendLog, ModelSource } from "../backend.ts";
import { parseFlag, parseInteger } from "../onnx_setting_values.ts";

/** What the parameters of a configuration say. */
export interface TorchSettings {
  readonly switches: TorchRunSwitches;
  /** Instances on one device use one module. */
  readonly weightSharing: boolean;
  /** Threads of the process; 0 = as they are. */
  readonly threads: { readonly intra: number; readonly inter: number };
  /** What is said of them in the log. */
  readonly words: readonly string[];
}

/** What the log calls a switch that was set. */
const WORDS: Readonly<Record<string, string>> = {
  DISABLE_OPTIMIZED_EXECUTION: "Optimized execution",
  ENABLE_CACHE_CLEANING: "Cache Cleaning",
  INFERENCE_MODE: "Inference Mode",
  DISABLE_CUDNN: "cuDNN",
  ENABLE_CUDNN: "cuDNN",
  ENABLE_TENSOR_FUSER: "Tensor fuser",
  ENABLE_WEIGHT_SHARING: "Weight sharing",
  ENABLE_JIT_PROFILING: "Jit profiling",
  ENABLE_JIT_EXECUTOR: "Jit executor",
};

/** @throws ServerError INVALID_ARG naming the parameter and its value. */
export function readTorchSettings(
  { config, name }: Pick<ModelSource, "config" | "name">,
): TorchSettings {
  const words: string[] = [];
  const text = (key: string) => config.parameters[key]?.stringValue || undefined;
  const read = (key: string): boolean | undefined => {
    const value = text(key);
    return value === undefined
      ? undefined
      : parseFlag(value, `parameter '${key}' of model '${name}'`);
  };
  const flag = (key: string): boolean | undefined => {
    const value = read(key);
    if (value === undefined) return undefined;
    const isOn = key.startsWith("DISABLE_") ? !value : value;
    words.push(`${WORDS[key]} is ${isOn ? "enabled" : "disabled"} for model instance '${name}'`);
    return isOn;
  };
  const count = (key: string): number => {
    const value = text(key);
    if (value === undefined) return 0;
    return Math.max(0, parseInteger(value, `parameter '${key}' of model '${name}'`));
  };
  if (read("ENABLE_NVFUSER") === true) {
    words.push(
      `parameter 'ENABLE_NVFUSER' of model '${name}' has no effect: libtorch has no nvFuser any more`,
    );
  }
  return {
    switches: {
      optimizedExecution: flag("DISABLE_OPTIMIZED_EXECUTION") ?? true,
      cacheCleaning: flag("ENABLE_CACHE_CLEANING") ?? false,
      inferenceMode: flag("INFERENCE_MODE") ?? true,
      cudnn: flag("DISABLE_CUDNN") ?? flag("ENABLE_CUDNN") ?? true,
      tensorFuser: flag("ENABLE_TENSOR_FUSER"),
      jitProfiling: flag("ENABLE_JIT_PROFILING"),
      jitExecutor: flag("ENABLE_JIT_EXECUTOR"),
    },
    weightSharing: flag("ENABLE_WEIGHT_SHARING") ?? false,
    threads: { intra: count("INTRA_OP_THREAD_COUNT"), inter: count("INTER_OP_THREAD_COUNT") },
    words,
  };
}

type ThreadCounts = TorchSettings["threads"];

/** Threads belong to the process: the first model that tells a count decides, others are told so. */
export class TorchThreads {
  readonly #decided = new Map<keyof ThreadCounts, { count: number; model: string }>();
  readonly #log: Pick<BackendLog, "info" | "warning">;

  constructor(log: Pick<BackendLog, "info" | "warning">) {
    this.#log = log;
  }

  /** `set` may throw: threads between operators cannot be changed behind the first run. */
  apply(model: string, wanted: ThreadCounts, set: (threads: ThreadCounts) => void): void {
    for (const kind of ["intra", "inter"] as const) {
      const count = wanted[kind];
      if (count === 0) continue;
      const key = `${kind.toUpperCase()}_OP_THREAD_COUNT`;
      const decided = this.#decided.get(kind);
      if (decided !== undefined) {
        if (decided.count === count) continue;
        this.#log.warning(
          `${key} ${count} of model '${model}' is ignored: model '${decided.model}' set it to ` +
            `${decided.count} for the whole process`,
        );
        continue;
      }
      try {
        set({ intra: 0, inter: 0, [kind]: count });
        this.#decided.set(kind, { count, model });
        const name = kind === "intra" ? "Intra" : "Inter";
        this.#log.info(`${name} op thread count is set to ${count} for model instance '${model}'`);
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        this.#log.warning(`${key} of model '${model}' has no effect: ${reason}`);
      }
    }
  }
}
