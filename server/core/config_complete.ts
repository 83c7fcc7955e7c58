import type {
  Backend,
  BackendModel,
  DeviceClass,
  Devices,
  ModelSource,
} from "../../backends/backend.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import {
  checkInstanceGroups,
  checkModelConfig,
  checkModelIo,
  configError,
  configFaults,
  type ConfigIssue,
  type ConfigPositions,
  normalizeInstanceGroups,
  normalizeModelConfig,
  placedError,
} from "../../proto/model_config.ts";
import { isPathInside } from "../../proto/model_config_path.ts";
import { ServerError } from "../../proto/status.ts";
import { batchStrategyIssues } from "./batch_strategy_file.ts";
import { readLabels } from "./config_labels.ts";
import { checkStateFiles } from "./config_states.ts";
import { chooseKinds, type KindChoice, mayFallBack } from "./instance_kinds.ts";
import type { ServerOptions } from "./options.ts";

/** Key of `--backend-config` for the batch size of models that give none. */
const DEFAULT_BATCH_KEY = "default-max-batch-size";

/** A model version whose configuration is to be completed. */
export interface ConfigSource extends ModelSource {
  /** Where its fields stand in the file: errors then tell the place. */
  readonly positions?: ConfigPositions;
}

/** What is known of the machine when a configuration is completed. */
export interface CompletionMachine {
  /** Absent = nothing of any device but the CPU. */
  readonly devices?: Devices | undefined;
  /** Families of devices on which the version could not be loaded before. */
  readonly failed?: ReadonlyMap<DeviceClass, string> | undefined;
  /** Told where the groups go before the backend is asked: what it finds may be a fault of the device. */
  readonly onChosen?: ((choice: KindChoice) => void) | undefined;
}

/**
 * Completes the configuration of one version in place and checks it: config.md §3, steps 7 and 8. Instance groups,
 * what the backend fills in from the model, defaults, inputs, outputs and labels.
 * @returns on which kinds of devices the instance groups go.
 * @throws ServerError with all that is wrong; the version is then UNAVAILABLE.
 */
export async function completeModelConfig(
  source: ConfigSource,
  backend: Backend,
  options: ServerOptions,
  { devices, failed, onChosen }: CompletionMachine = {},
): Promise<KindChoice> {
  const { config } = source;
  const issues: ConfigIssue[] = runtimeIssues(source, backend);
  config.runtime ||= backend.runtime ?? "";
  const settings = { devices, failed, mayFallBack: mayFallBack(options, backend.name) };
  const kinds = await chooseKinds(source, backend, settings);
  onChosen?.(kinds);
  normalizeInstanceGroups(config, backend.preference);
  issues.push(...checkInstanceGroups(config, kinds.machine));
  // A path that leads outside must not be followed, not even to complete the rest.
  const pathIssues = checkModelIo(config).filter((issue) => isFileField(issue.path));
  const written = describedTensors(config);
  if (options.autoCompleteConfig && pathIssues.length === 0) {
    issues.push(...await autoComplete(source, backend, options));
  }
  normalizeModelConfig(config);
  const completed = describedTensors(config).difference(written);
  issues.push(...checkModelConfig(config), ...checkModelIo(config, completed));
  const { issues: labelIssues } = await readLabels(config, source);
  issues.push(...labelIssues, ...await checkStateFiles(config, source));
  issues.push(...await batchStrategyIssues(source));
  if (issues.length > 0) throw configError(issues, source.positions);
  return kinds;
}

/** Opens the model; what the backend finds wrong is told with its place in the file. */
export async function openModel(source: ConfigSource, backend: Backend): Promise<BackendModel> {
  try {
    return await backend.openModel(source);
  } catch (reason) {
    throw placedError(reason, source.positions);
  }
}

/** The error for a model whose backend does not exist (config.md §4). */
export function unknownBackendError(
  config: ModelConfig,
  backendNames: readonly string[],
  positions?: ConfigPositions,
): ServerError {
  const message =
    `unable to find backend library for backend '${config.backend}', try specifying ` +
    `runtime on the model configuration.`;
  const hint = `this server has the backends ${backendNames.join(", ")}, and those that are a ` +
    "folder of --backend-directory with a model.py";
  return configError([{ path: "backend", message, hint }], positions);
}

/**
 * Checks the default batch size of `--backend-config` that holds for a backend; the backend reads it itself, as part of
 * its settings, but a wrong one is told in one way for all.
 * @throws ServerError INVALID_ARG when it is no number.
 */
export function checkDefaultBatchSize(options: ServerOptions, backendName: string): void {
  const text = options.backendConfig.get(backendName)?.get(DEFAULT_BATCH_KEY) ??
    options.backendConfig.get("")?.get(DEFAULT_BATCH_KEY);
  if (text === undefined || /^\s*[+-]?[0-9]/.test(text)) return;
  throw new ServerError("INVALID_ARG", `failed to convert '${text}' to integral number`);
}

function describedTensors({ input, output }: ModelConfig): Set<string> {
  const described = [...input, ...output].filter(({ dims }) => dims.length > 0);
  return new Set(described.map(({ name }) => name));
}

async function autoComplete(
  source: ConfigSource,
  backend: Backend,
  options: ServerOptions,
): Promise<ConfigIssue[]> {
  const before = source.config.schedulingChoice.case;
  try {
    checkDefaultBatchSize(options, backend.name);
    await backend.autoComplete(source);
  } catch (reason) {
    return [...configFaults(reason).issues];
  }
  const after = source.config.schedulingChoice.case;
  if (before === undefined || before === after) return [];
  const message =
    `Cannot update scheduling choice from ${before} to ${after} when auto-completing.`;
  return [{ path: "", message, code: "INTERNAL" }];
}

/** `runtime` may only name what stands for the backend itself: nothing else is ever loaded. */
function runtimeIssues(
  { config, name, version }: ConfigSource,
  { runtime: expected }: Backend,
): ConfigIssue[] {
  const { runtime, backend } = config;
  if (runtime === "" || runtime === (expected ?? `libtriton_${backend}.so`)) return [];
  const message = isPathInside(runtime) && !runtime.startsWith("/")
    ? `unable to find backend library '${runtime}' for model '${name}', searched: ` +
      `'${name}/${version}' '${name}' '${backend}' `
    : `backend library name '${runtime}' escapes backend directory '${backend}', for model ` +
      `'${name}', check model config runtime field`;
  return [{ path: "runtime", message }];
}

function isFileField(path: string): boolean {
  return path === "default_model_filename" || path.startsWith("cc_model_filenames");
}
