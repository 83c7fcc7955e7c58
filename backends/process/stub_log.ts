import type { BackendLog, LogPlace } from "../backend.ts";
import type { Frame } from "./frame.ts";

const TEXT_LENGTH_MAX = 64 * 1024;
/** Of lines that do not tell theirs. */
const VERBOSE_LEVEL = 1;
const VERBOSE_LEVEL_MAX = 100;

/** Writes a LOG frame to the server's log: `{"l": level, "s": file, "n": line, "m": text, "v": verbose level}`. */
export function writeLog(log: BackendLog, { json }: Frame): void {
  const { l: level, s: file, n: line, m: text, v: verboseLevel } = json;
  const message = String(text).slice(0, TEXT_LENGTH_MAX);
  const place: LogPlace | undefined = typeof file === "string" && typeof line === "number"
    ? { file, line }
    : undefined;
  switch (level) {
    case "ERROR":
      return log.error(message, place);
    case "WARNING":
      return log.warning(message, place);
    case "VERBOSE":
      return log.verbose(readLevel(verboseLevel), message, place);
    default:
      return log.info(message, place);
  }
}

function readLevel(level: unknown): number {
  const isLevel = Number.isInteger(level) && (level as number) >= 1;
  return isLevel ? Math.min(level as number, VERBOSE_LEVEL_MAX) : VERBOSE_LEVEL;
}
