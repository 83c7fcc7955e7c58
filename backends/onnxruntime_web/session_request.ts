import { dirname, isAbsolute, join } from "node:path";
import { configError } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import type { BackendSettings, ModelSource } from "../backend.ts";
import {
  integerSetting,
  parseExecutionMode,
  parseFlag,
  parseInteger,
} from "../onnx_setting_values.ts";
import { readExternalFiles } from "./model_tensors.ts";
import type { SessionRequest } from "./worker_protocol.ts";

/** Parameters handed to the runtime as entries of the session's configuration. */
const SESSION_ENTRY_KEYS = ["session.set_denormal_as_zero"];
const MAX_THREADS = 64;

/**
 * What a model is loaded with, by its configuration and the server's flags (config.md §10). Parameters that tune what
 * this runtime has not (arena shrinkage, spinning) are accepted and do nothing.
 * @throws ServerError INVALID_ARG naming a parameter and its value, UNSUPPORTED for libraries of operators.
 */
export async function readSessionRequest(
  source: ModelSource,
  { path, settings }: { readonly path: string; readonly settings: BackendSettings },
): Promise<Omit<SessionRequest, "provider">> {
  const { config } = source;
  checkAccelerators(source);
  checkOperatorLibraries(source);
  const read = <T>(key: string, parse: (text: string, name: string) => T): T | undefined => {
    const text = config.parameters[key]?.stringValue;
    return text === undefined
      ? undefined
      : parse(text, `parameter '${key}' of model '${source.name}'`);
  };
  const threads = read("intra_op_thread_count", parseInteger) ??
    integerSetting(settings, "intra_op_thread_count") ?? 0;
  const enableCpuMemArena = read("enable_mem_arena", parseFlag);
  const enableMemPattern = read("enable_mem_pattern", parseFlag);
  return {
    path,
    externalFiles: await externalFiles(source, path),
    threadCount: threads > 0 ? Math.min(threads, MAX_THREADS) : ownThreadCount(),
    graphOptimizationLevel: graphLevel(config.optimization?.graph?.level ?? 0),
    executionMode: read("execution_mode", parseExecutionMode) ? "parallel" : "sequential",
    ...(enableCpuMemArena === undefined ? {} : { enableCpuMemArena }),
    ...(enableMemPattern === undefined ? {} : { enableMemPattern }),
    isDeviceOnly: read("session.disable_cpu_ep_fallback", parseFlag) ?? false,
    entries: sessionEntries(source),
  };
}

/** Half of the processors, 4 at most: threads of the runtime spin while they wait for each other. */
function ownThreadCount(): number {
  return Math.min(4, Math.max(1, Math.ceil(navigator.hardwareConcurrency / 2)));
}

function graphLevel(level: number): SessionRequest["graphOptimizationLevel"] {
  if (level === -1) return "basic";
  if (level === 1) return "extended";
  if (level === 2) return "disabled";
  return "all";
}

function sessionEntries({ config }: ModelSource): Record<string, string> {
  const entries: Record<string, string> = {};
  for (const key of SESSION_ENTRY_KEYS) {
    const value = config.parameters[key]?.stringValue;
    if (value !== undefined && value !== "") entries[key] = value;
  }
  return entries;
}

async function externalFiles(source: ModelSource, path: string): Promise<string[]> {
  const files = await readExternalFiles(path);
  for (const file of files) await checkExternalFile(file, path, source.name);
  return files;
}

/** @throws ServerError INVALID_ARG for a file outside the folder of the model's file, and for what is no file. */
export async function checkExternalFile(
  file: string,
  modelPath: string,
  modelName: string,
): Promise<void> {
  const refuse = (why: string) =>
    new ServerError("INVALID_ARG", `model '${modelName}' keeps weights in '${file}', which ${why}`);
  const outside = "is outside of its folder";
  if (isAbsolute(file) || file.split(/[\\/]/).includes("..")) throw refuse(outside);
  const folder = dirname(modelPath);
  try {
    const [target, home] = [join(folder, file), await Deno.realPath(folder)];
    // Reading a pipe would take until somebody writes.
    if (!(await Deno.stat(target)).isFile) throw refuse("is no regular file");
    const real = await Deno.realPath(target);
    // The model itself may be a link into a store, with its weights beside it there.
    const homes = [home, dirname(await Deno.realPath(modelPath))];
    if (!homes.some((each) => real.startsWith(`${each}/`))) throw refuse(`${outside}: '${real}'`);
  } catch (error) {
    if (!(error instanceof Deno.errors.NotFound)) throw error;
    // The runtime tells the tensor that misses it.
  }
}

/** Accelerators for GPUs do not matter on a CPU; for CPUs there is none here. */
function checkAccelerators({ config }: ModelSource): void {
  const requested = config.optimization?.executionAccelerators?.cpuExecutionAccelerator ?? [];
  if (requested.length === 0) return;
  throw configError(requested.map(({ name }, index) => ({
    path: `optimization.execution_accelerators.cpu_execution_accelerator[${index}]`,
    message: `unknown Execution Accelerator '${name}' is requested`,
    hint: "onnxruntime-web has none for CPUs; take the entry out",
  })));
}

function checkOperatorLibraries({ name, config }: ModelSource): void {
  const [library] = config.modelOperations?.opLibraryFilename ?? [];
  if (library === undefined) return;
  throw new ServerError(
    "UNSUPPORTED",
    `model '${name}' needs the library of operators '${library}', which only the native ONNX ` +
      "Runtime can open (see docs/onnxruntime_web.md)",
  );
}
