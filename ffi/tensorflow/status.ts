import { NativeHandle } from "../handle.ts";
import { readCString } from "../memory.ts";
import type { TfCalls } from "./symbols.ts";

/** Names of the library's codes, by number. */
const CODE_NAMES: Readonly<Record<number, string>> = {
  1: "CANCELLED",
  2: "UNKNOWN",
  3: "INVALID_ARGUMENT",
  4: "DEADLINE_EXCEEDED",
  5: "NOT_FOUND",
  6: "ALREADY_EXISTS",
  7: "PERMISSION_DENIED",
  8: "RESOURCE_EXHAUSTED",
  9: "FAILED_PRECONDITION",
  10: "ABORTED",
  11: "OUT_OF_RANGE",
  12: "UNIMPLEMENTED",
  13: "INTERNAL",
  14: "UNAVAILABLE",
  15: "DATA_LOSS",
  16: "UNAUTHENTICATED",
};

/** Texts of the library may hold whole graphs. */
const MAX_TEXT_LENGTH = 2000;

/** A failure that the library tells. */
export class TfError extends Error {
  override readonly name = "TfError";
  /** Such as `INVALID_ARGUMENT`. */
  readonly code: string;

  constructor(code: number, text: string) {
    const short = text.length > MAX_TEXT_LENGTH ? `${text.slice(0, MAX_TEXT_LENGTH)}…` : text;
    const name = CODE_NAMES[code] ?? `code ${code}`;
    super(`${name}: ${short.trim() || "without a text"}`);
    this.code = name;
  }
}

/** A `TF_Status*`: what became of one call at a time. */
export class TfStatus extends NativeHandle {
  readonly #calls: TfCalls;

  constructor(calls: TfCalls) {
    const pointer = calls.TF_NewStatus();
    if (pointer === null) throw new TfError(8, "no status was made");
    super(pointer, (status) => calls.TF_DeleteStatus(status));
    this.#calls = calls;
  }

  /** The failure of the last call that got it, if any. */
  failure(): TfError | undefined {
    const code = this.#calls.TF_GetCode(this.pointer);
    if (code === 0) return undefined;
    return new TfError(code, readCString(this.#calls.TF_Message(this.pointer)));
  }

  /** @throws TfError of the last call that got it. */
  check(): void {
    const failure = this.failure();
    if (failure !== undefined) throw failure;
  }
}
