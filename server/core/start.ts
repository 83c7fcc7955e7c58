import { ServerError } from "../../proto/status.ts";
import type { ModelState } from "./inference_api.ts";
import type { ModelRegistry } from "./model_registry.ts";
import type { ServerOptions } from "./options.ts";

/** One row of the table of models that is shown after the start. */
export interface StartedModel {
  /** The model. */
  readonly name: string;
  /** Undefined when its directory could not be read as a model. */
  readonly version: number | undefined;
  /** State of the version. */
  readonly state: ModelState;
  /** Why it does not serve, or "". */
  readonly reason: string;
  /** How long the load took. */
  readonly loadMs: number;
}

/** How the start went. */
export interface StartResult {
  /** True when everything that should serve does. */
  readonly ok: boolean;
  /** What is wrong, for `error: creating server: <code> - <message>`; undefined when ok. */
  readonly error: ServerError | undefined;
  readonly models: readonly StartedModel[];
}

/**
 * Names of the models to load at the start (management.md §1).
 * @throws ServerError for a wildcard among other names.
 */
export function startModelNames(
  options: ServerOptions,
  directories: readonly string[],
): readonly string[] {
  const { modelControlMode, loadModels } = options;
  if (modelControlMode !== "explicit") return directories;
  if (!loadModels.includes("*")) return [...new Set(loadModels)];
  if (loadModels.length === 1) return directories;
  throw new ServerError(
    "INVALID_ARG",
    "Wildcard model name '*' must be the ONLY startup model if specified at all.",
  );
}

/** The table of the models of the start, in their order. */
export function listStartedModels(
  registry: ModelRegistry,
  names: readonly string[],
  loads: readonly PromiseSettledResult<void>[],
): StartedModel[] {
  return names.flatMap((name, index): StartedModel[] => {
    const versions = registry.get(name)?.versions() ?? [];
    if (versions.length > 0) {
      return versions.map(({ version, state, reason, loadMs }) => ({
        name,
        version,
        state,
        reason,
        loadMs,
      }));
    }
    const load = loads[index];
    const failure = registry.readFailure(name);
    const reason = failure !== undefined
      ? failure.reason
      : load?.status === "rejected"
      ? ServerError.from(load.reason).toReason()
      : "";
    return [{ name, version: undefined, state: "UNAVAILABLE", reason, loadMs: 0 }];
  });
}
