import type { BackendLog, LogPlace } from "../backend.ts";
import type { Frame } from "../process/frame.ts";

const TEXT_LENGTH_MAX = 64 * 1024;
const VERBOSE_LEVEL = 1;

/** Writes a LOG frame to the server's log. */
export function writeLog(log: BackendLog, { json }: Frame): void {
  const { l: level, s: file, n: line, m: text } = json;
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
      return log.verbose(VERBOSE_LEVEL, message, place);
    default:
      return log.info(message, place);
  }
}
