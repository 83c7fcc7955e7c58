import { ServerError } from "../../proto/status.ts";
import type { ModelControlMode } from "./options.ts";

/** @throws ServerError UNAVAILABLE when models are not loaded and unloaded by request (management.md §1). */
export function checkControlMode(mode: ModelControlMode): void {
  if (mode === "explicit") return;
  throw new ServerError(
    "UNAVAILABLE",
    `explicit model load / unload is not allowed if polling is enabled or models are loaded at ` +
      `start only: the model control mode is ${mode.toUpperCase()}`,
  );
}

/**
 * The configuration that a load request brings instead of the file; undefined = none (management.md §5).
 * @throws ServerError for parameters that nobody knows or that cannot be served yet.
 */
export function configOverride(
  name: string,
  parameters: Readonly<Record<string, string | Uint8Array>>,
): string | undefined {
  const { config, ...others } = parameters;
  const files = Object.keys(others).filter((key) => key.startsWith("file:"));
  const unknown = Object.keys(others).find((key) => !key.startsWith("file:"));
  if (unknown !== undefined || (config !== undefined && typeof config !== "string")) {
    throw new ServerError(
      "INVALID_ARG",
      `failed to load '${name}', unrecognized load parameter '${unknown ?? "config"}'`,
    );
  }
  if (files.length > 0) throw fileOverrideError(name, files, config);
  return config;
}

/** Why files cannot come with a request; what is wrong with them anyway is told first (management.md §5.2). */
function fileOverrideError(
  name: string,
  files: readonly string[],
  config: string | undefined,
): ServerError {
  const outside = files.find((key) => /^file:(\/|$)|(^|[:/])\.\.(\/|$)/.test(key));
  if (outside !== undefined) {
    return new ServerError(
      "INVALID_ARG",
      `failed to load '${name}', load parameter '${outside}' must name a file inside of the model`,
    );
  }
  if (config === undefined) {
    return new ServerError(
      "INTERNAL",
      `failed to load '${name}', failed to poll from model repository: load parameter 'config' ` +
        `must be specified for model file override`,
    );
  }
  return new ServerError(
    "UNSUPPORTED",
    `failed to load '${name}', load parameter '${files[0]}': this server does not support files ` +
      `in load requests yet`,
  );
}
