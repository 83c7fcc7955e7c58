import { ServerError } from "../../proto/status.ts";
import type { BackendSettings } from "../backend.ts";
import type { MemoryLimits } from "../process/stub_memory.ts";

const MEBIBYTE = 1024 * 1024;
const DEFAULT_MAX_BYTE_SIZE = 4096 * MEBIBYTE;

/** `--backend-config=python,…` (python-backend.md §A7, docs/python_models.md). */
export interface PythonSettings {
  readonly memory: MemoryLimits;
  /** Bound of the time until a process is connected, and of `finalize`. */
  readonly stubTimeoutMs: number;
  /** Interpreter of models without an environment of their own. */
  readonly executable: string;
  readonly restarts: boolean;
  /** `execute` may take so long; 0 = any time. */
  readonly executeTimeoutMs: number;
}

/** Reads the settings of the backend. @throws ServerError INVALID_ARG naming the setting and its value. */
export function readPythonSettings(settings: BackendSettings): PythonSettings {
  const initialByteSize = readInteger(settings, "shm-default-byte-size") ?? MEBIBYTE;
  if (initialByteSize < MEBIBYTE) {
    throw refused("shm-default-byte-size can't be smaller than 1 MiB", initialByteSize);
  }
  const growthByteSize = readPositive(settings, "shm-growth-byte-size") ?? MEBIBYTE;
  const maxByteSize = readPositive(settings, "shm-max-byte-size") ?? DEFAULT_MAX_BYTE_SIZE;
  if (maxByteSize < initialByteSize) {
    throw refused("shm-max-byte-size can't be smaller than shm-default-byte-size", maxByteSize);
  }
  const stubTimeoutSeconds = readPositive(settings, "stub-timeout-seconds") ?? 30;
  // These have no counterpart here, but what is wrong in them is told.
  const threadCount = readInteger(settings, "thread-pool-size") ?? 1;
  if (threadCount < 1) throw refused("thread-pool-size can't be less than 1.", threadCount);
  readInteger(settings, "shm_message_queue_size");
  if (settings.get("shm-region-prefix-name") === "") {
    throw refused("shm-region-prefix-name must not be empty", "''");
  }
  return {
    memory: { initialByteSize, growthByteSize, maxByteSize },
    stubTimeoutMs: stubTimeoutSeconds * 1000,
    executable: settings.get("python-executable") ?? "python3",
    restarts: readRestart(settings),
    executeTimeoutMs: readSeconds(settings, "execute-timeout-seconds") * 1000,
  };
}

function readRestart(settings: BackendSettings): boolean {
  const choice = settings.get("stub-restart") ?? "on-failure";
  if (choice === "on-failure" || choice === "never") return choice === "on-failure";
  throw refused("stub-restart must be 'on-failure' or 'never'", `'${choice}'`);
}

/** Reads the whole number at the start of the text, as the reference does. */
function readInteger(settings: BackendSettings, key: string): number | undefined {
  const text = settings.get(key);
  if (text === undefined) return undefined;
  const value = Number(/^\s*([+-]?\d+)/.exec(text)?.[1] ?? NaN);
  if (Number.isSafeInteger(value)) return value;
  throw new ServerError(
    "INVALID_ARG",
    `failed to convert '${text}' to integral number for --backend-config=python,${key}`,
  );
}

function readPositive(settings: BackendSettings, key: string): number | undefined {
  const value = readInteger(settings, key);
  if (value === undefined || value > 0) return value;
  throw refused(`${key} can't be smaller than or equal to zero.`, value);
}

/** Seconds, fractions allowed; 0 = none. */
function readSeconds(settings: BackendSettings, key: string): number {
  const text = settings.get(key) ?? "0";
  const value = text.trim() === "" ? NaN : Number(text);
  if (value >= 0 && Number.isFinite(value)) return value;
  throw refused(`${key} must be a number of seconds from 0 on`, `'${text}'`);
}

function refused(message: string, value: number | string): ServerError {
  return new ServerError("INVALID_ARG", `${message} (got ${value})`);
}
