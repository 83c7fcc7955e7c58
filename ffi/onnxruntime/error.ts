import { readCString } from "../memory.ts";
import type { OrtCalls } from "./api_table.ts";

/** A failed call: the runtime's error code and its own words. */
export class OrtError extends Error {
  override readonly name = "OrtError";
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/**
 * Turns an `OrtStatus*` into an error and frees it; null means success.
 * @returns the failure, or undefined.
 */
export function takeStatus(calls: OrtCalls, status: Deno.PointerValue): OrtError | undefined {
  if (status === null) return undefined;
  const code = calls.GetErrorCode(status);
  // The message belongs to the status: read it before that is freed.
  const message = readCString(calls.GetErrorMessage(status));
  calls.ReleaseStatus(status);
  return new OrtError(code, message);
}

/** @throws OrtError when the status tells of a failure. */
export function checkStatus(calls: OrtCalls, status: Deno.PointerValue): void {
  const error = takeStatus(calls, status);
  if (error !== undefined) throw error;
}
