import { join } from "node:path";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { GRAPH_OPTIMIZATION, type SessionSettings } from "../../ffi/onnxruntime/mod.ts";
import type { BackendSettings, ModelSource } from "../backend.ts";
import {
  integerSetting,
  parseExecutionMode,
  parseFlag,
  parseInteger,
} from "../onnx_setting_values.ts";

/** Parameters handed to the runtime as entries of the session's configuration. */
const SESSION_ENTRY_KEYS = [
  "session.use_device_allocator_for_initializers",
  "session.intra_op.allow_spinning",
  "session.inter_op.allow_spinning",
  "session.set_denormal_as_zero",
  "session.x64quantprecision",
  "session.disable_cpu_ep_fallback",
];
/**
 * Entries that differ from the runtime's own defaults. Threads that spin while they wait for work take the cores that
 * the event loop and other models need: on two cores that halved the throughput of a small network. Without precision
 * for quantized weights, sums of products saturate on processors that have AVX2 but not VNNI: a text model gave another
 * text there.
 */
const SESSION_ENTRY_DEFAULTS: Readonly<Record<string, string>> = {
  "session.intra_op.allow_spinning": "0",
  "session.x64quantprecision": "1",
};
const ARENA_SHRINKAGE_KEY = "memory.enable_memory_arena_shrinkage";

/** Everything the configuration and the server's flags say about running one model. */
export interface ModelSettings {
  readonly session: SessionSettings;
  /** Configuration entries of every run. */
  readonly runEntries: Readonly<Record<string, string>>;
}

/**
 * Reads graph level, parameters and operator libraries of config.md §10.
 * @throws ServerError INVALID_ARG naming the parameter and its value.
 */
export function readModelSettings(source: ModelSource, settings: BackendSettings): ModelSettings {
  const { config } = source;
  const read = <T>(key: string, parse: (text: string, name: string) => T): T | undefined => {
    const text = config.parameters[key]?.stringValue;
    return text === undefined
      ? undefined
      : parse(text, `parameter '${key}' of model '${source.name}'`);
  };
  const threads = (key: string): number =>
    read(key, parseInteger) ?? integerSetting(settings, key) ?? 0;
  const memoryArena = read("enable_mem_arena", parseFlag);
  const memoryPattern = read("enable_mem_pattern", parseFlag);
  const shrinkage = config.parameters[ARENA_SHRINKAGE_KEY]?.stringValue;
  return {
    session: {
      graphOptimization: graphOptimization(config.optimization?.graph?.level ?? 0),
      intraOpThreadCount: threads("intra_op_thread_count"),
      interOpThreadCount: threads("inter_op_thread_count"),
      parallelExecution: read("execution_mode", parseExecutionMode) ?? false,
      ...(memoryArena === undefined ? {} : { memoryArena }),
      ...(memoryPattern === undefined ? {} : { memoryPattern }),
      entries: sessionEntries(config),
      operatorLibraries: operatorLibraries(source),
    },
    runEntries: shrinkage === undefined || shrinkage === ""
      ? {}
      : { [ARENA_SHRINKAGE_KEY]: shrinkage },
  };
}

function sessionEntries(config: ModelConfig): Record<string, string> {
  const entries: Record<string, string> = { ...SESSION_ENTRY_DEFAULTS };
  for (const key of SESSION_ENTRY_KEYS) {
    const value = config.parameters[key]?.stringValue;
    if (value !== undefined && value !== "") entries[key] = value;
  }
  return entries;
}

function graphOptimization(level: number): number {
  if (level === -1) return GRAPH_OPTIMIZATION.BASIC;
  if (level === 1) return GRAPH_OPTIMIZATION.EXTENDED;
  if (level === 2) return GRAPH_OPTIMIZATION.OFF;
  return GRAPH_OPTIMIZATION.ALL;
}

function operatorLibraries(source: ModelSource): string[] {
  const names = source.config.modelOperations?.opLibraryFilename ?? [];
  return names.map((name) => {
    const path = join(source.modelDirectory, name);
    try {
      return Deno.statSync(path).isFile ? path : name;
    } catch {
      // Not in the model's folder: left to the search of the system's loader, whose failure names the file.
      return name;
    }
  });
}
