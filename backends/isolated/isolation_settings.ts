import { ServerError } from "../../proto/status.ts";
import type { BackendSettings } from "../backend.ts";
import type { MemoryLimits } from "../process/stub_memory.ts";

const MEBIBYTE = 1024 * 1024;
const GROWTH_BYTE_SIZE = 16 * MEBIBYTE;
const DEFAULT_MAX_BYTE_SIZE = 4096 * MEBIBYTE;
const DEFAULT_TIMEOUT_SECONDS = 30;

/** `--backend-config` settings of isolated instances (docs/isolation.md). */
export interface IsolationSettings {
  /** What each instance and the server may share, for each direction. */
  readonly memory: MemoryLimits;
  /** Bound of the time until a process is connected, and of its end. */
  readonly timeoutMs: number;
  /** Each part of a load may take so long; 0 = any time. */
  readonly loadTimeoutMs: number;
  /** `execute` may take so long; 0 = any time. */
  readonly executeTimeoutMs: number;
}

/** @throws ServerError INVALID_ARG naming the setting and its value. */
export function readIsolationSettings(settings: BackendSettings): IsolationSettings {
  const maxByteSize = readNumber(settings, "shm-max-byte-size", DEFAULT_MAX_BYTE_SIZE);
  if (maxByteSize < MEBIBYTE || !Number.isSafeInteger(maxByteSize)) {
    throw refused("shm-max-byte-size", "a number of bytes from 1 MiB on", maxByteSize);
  }
  const timeout = readNumber(settings, "isolation-timeout-seconds", DEFAULT_TIMEOUT_SECONDS);
  if (timeout === 0) throw refused("isolation-timeout-seconds", "more than 0", timeout);
  return {
    memory: { initialByteSize: MEBIBYTE, growthByteSize: GROWTH_BYTE_SIZE, maxByteSize },
    timeoutMs: timeout * 1000,
    loadTimeoutMs: readNumber(settings, "load-timeout-seconds", 0) * 1000,
    executeTimeoutMs: readNumber(settings, "execute-timeout-seconds", 0) * 1000,
  };
}

function readNumber(settings: BackendSettings, key: string, fallback: number): number {
  const text = settings.get(key);
  if (text === undefined) return fallback;
  const value = text.trim() === "" ? NaN : Number(text);
  if (value >= 0 && Number.isFinite(value)) return value;
  throw refused(key, "a number from 0 on", `'${text}'`);
}

function refused(key: string, expected: string, value: number | string): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `--backend-config '${key}' must be ${expected}, got ${value}`,
  );
}
