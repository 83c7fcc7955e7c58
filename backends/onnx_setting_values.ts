import { ServerError } from "../proto/status.ts";
import type { BackendSettings } from "./backend.ts";

/** An integer among the server's settings of the backend; undefined when it is not there. */
export function integerSetting(settings: BackendSettings, key: string): number | undefined {
  const text = settings.get(key);
  return text === undefined ? undefined : parseInteger(text, `--backend-config '${key}'`);
}

/** A truth value among the server's settings of the backend. */
export function flagSetting(settings: BackendSettings, key: string): boolean | undefined {
  const text = settings.get(key);
  return text === undefined ? undefined : parseFlag(text, `--backend-config '${key}'`);
}

/** Reads the number at the start of the text, as the reference does: what follows it is ignored. */
export function parseInteger(text: string, name: string): number {
  const match = /^\s*([+-]?\d+)/.exec(text);
  const value = match === null ? NaN : Number(match[1]);
  if (!(value >= -(2 ** 31) && value < 2 ** 31)) {
    throw new ServerError(
      "INVALID_ARG",
      `failed to convert '${text}' to integral number for ${name}`,
    );
  }
  return value;
}

/** Reads a truth value. @throws ServerError INVALID_ARG naming what is read. */
export function parseFlag(text: string, name: string): boolean {
  const lower = text.toLowerCase();
  if (lower === "1" || lower === "true") return true;
  if (lower === "0" || lower === "false") return false;
  throw new ServerError("INVALID_ARG", `failed to convert '${text}' to boolean for ${name}`);
}

/** True = parallel. @throws ServerError INVALID_ARG naming what is read. */
export function parseExecutionMode(text: string, name: string): boolean {
  const mode = parseInteger(text, name);
  if (mode === 0 || mode === 1) return mode === 1;
  throw new ServerError(
    "INVALID_ARG",
    `Invalid configuration value provided for ${name}. Expected values for execution_mode are ` +
      `0 or 1 but got ${mode}.`,
  );
}
