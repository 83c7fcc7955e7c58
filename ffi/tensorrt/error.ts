import type { LogLine } from "./logger.ts";

/** TensorRT refused something; the message has what it wrote to its log. */
export class TensorRtError extends Error {
  override readonly name = "TensorRtError";
}

/** The errors among the lines, joined; "" when there are none. */
export function errorText(lines: readonly LogLine[]): string {
  return lines
    .filter(({ severity }) => severity === "error" || severity === "internal error")
    .map(({ text }) => text)
    .join("; ");
}

/** An error about something that could not be done, with the reasons from the log. */
export function refusal(what: string, lines: readonly LogLine[]): TensorRtError {
  const reasons = errorText(lines);
  return new TensorRtError(reasons === "" ? what : `${what}: ${reasons}`);
}
