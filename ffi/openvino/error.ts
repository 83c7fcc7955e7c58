import { readCString } from "../memory.ts";
import type { OvCalls } from "./symbols.ts";

/** A call of the C interface itself that was not understood; it leaves the text of the failure before. */
export const INVALID_C_PARAMETER = -14;
/** What nearly every failure gives. */
export const GENERAL_ERROR = -1;
/** Status of a run that was cancelled. */
export const INFER_CANCELLED = -13;
const MAX_TEXT_LENGTH = 2000;

/** A failed call: its status and the runtime's own words. */
export class OvError extends Error {
  override readonly name = "OvError";
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** @throws OvError when the status tells of a failure. */
export function checkStatus(calls: OvCalls, status: number): void {
  if (status !== 0) throw failureOf(calls, status);
}

/** The failure a status tells of. Its text is the last one of the process: ask at once, before other calls. */
export function failureOf(calls: OvCalls, status: number): OvError {
  const text = status <= INVALID_C_PARAMETER ? "" : takeText(calls, calls.ov_get_last_err_msg());
  return new OvError(status, text || readCString(calls.ov_get_error_info(status)));
}

/** Reads a text that `ov_get_last_err_msg` gave, and frees it. */
export function takeText(calls: OvCalls, text: Deno.PointerValue): string {
  const result = tidy(readCString(text));
  calls.ov_free(text);
  return result;
}

/** Lines that say where in its sources the runtime noticed, and names of its layers, help nobody. */
function tidy(text: string): string {
  const lines = text.split("\n").map((line) => line.trim())
    .filter((line) => line !== "" && !/^Exception from \S+:\d+:?$/.test(line))
    .filter((line) => !/^FrontEnd API failed with \w+:$/.test(line))
    .map((line) => line.replace(/ ?failed at src\/\S+:\d+:?$/, " failed:"));
  return lines.join(" ").slice(0, MAX_TEXT_LENGTH);
}
