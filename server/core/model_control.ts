import { printableName } from "../../proto/model_name.ts";
import { ServerError } from "../../proto/status.ts";
import type { ModelControlMode } from "./options.ts";
import { type ModelOverride, readOverrideFiles } from "./override_files.ts";

/** Longest part of a parameter that an error repeats. */
const SHOWN_MAX = 255;

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
 * What a load request brings instead of what is on disk; undefined = nothing (management.md §5).
 * @throws ServerError for parameters that nobody knows, files that lie nowhere in a model, or files without `config`.
 */
export function readOverride(
  name: string,
  parameters: Readonly<Record<string, string | Uint8Array>>,
): ModelOverride | undefined {
  const { config, ...others } = parameters;
  const unknown = Object.keys(others).find((key) => !key.startsWith("file:"));
  if (unknown !== undefined || (config !== undefined && typeof config !== "string")) {
    const shown = printableName((unknown ?? "config").slice(0, SHOWN_MAX));
    throw new ServerError(
      "INVALID_ARG",
      `failed to load '${name}', unrecognized load parameter '${shown}'`,
    );
  }
  const files = readOverrideFiles(name, others);
  if (config !== undefined) return { config, files };
  if (files === undefined) return undefined;
  throw new ServerError(
    "INTERNAL",
    `failed to load '${name}', failed to poll from model repository: load parameter 'config' ` +
      `must be specified for model file override`,
  );
}
