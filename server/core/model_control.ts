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

/** @throws ServerError INVALID_ARG for a name that could reach outside of the repositories (http.md §5.2). */
export function checkModelName(name: string): void {
  if (name.trim() === "") {
    throw new ServerError(
      "INVALID_ARG",
      "Model name cannot be empty. Please enter a valid name to deploy.",
    );
  }
  if (name.includes("/") || name.includes("\\") || name.trim() === ".." || name.trim() === ".") {
    throw new ServerError(
      "INVALID_ARG",
      `invalid model name '${name}', model name must not contain path traversal characters`,
    );
  }
}

/**
 * The configuration that a load request brings instead of the file; undefined = none (management.md §5).
 * @throws ServerError for parameters that nobody knows or that cannot be served yet.
 */
export function configOverride(
  name: string,
  parameters: Readonly<Record<string, string | Uint8Array>>,
): string | undefined {
  let override: string | undefined;
  for (const [key, value] of Object.entries(parameters)) {
    if (key.startsWith("file:")) {
      throw new ServerError(
        "UNSUPPORTED",
        `failed to load '${name}', load parameter '${key}': this server does not support files in ` +
          `load requests yet`,
      );
    }
    if (key !== "config" || typeof value !== "string") {
      throw new ServerError(
        "INVALID_ARG",
        `failed to load '${name}', unrecognized load parameter '${key}'`,
      );
    }
    override = value;
  }
  return override;
}
