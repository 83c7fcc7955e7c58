import { ServerError, type StatusCode } from "../../proto/status.ts";
import type { ExecuteResponse } from "../backend.ts";
import { type PeerSlot, readTensors, type TensorPlace } from "../process/tensor_wire.ts";
import { clipText, readParameters } from "../process/wire_values.ts";

/** Codes of `TritonError`, by number (python-backend.md §A6). */
const CODES: readonly StatusCode[] = [
  "UNKNOWN",
  "INTERNAL",
  "NOT_FOUND",
  "INVALID_ARG",
  "UNAVAILABLE",
  "UNSUPPORTED",
  "ALREADY_EXISTS",
  "CANCELLED",
];

/** The number of a code. */
export function codeNumber(code: StatusCode): number {
  return CODES.indexOf(code);
}

/** Gives slots back to the process whose they are. */
export type FreeSlots = (slots: readonly PeerSlot[]) => void;

/**
 * Reads a result of a model: outputs by reference, which are given back through `release`, or an error.
 * @throws RangeError, SyntaxError for what cannot be.
 */
export function readResult(
  result: unknown,
  place: TensorPlace,
  freeSlots: FreeSlots,
): ExecuteResponse {
  if (typeof result !== "object" || result === null) throw new RangeError("Expected a result");
  const { o: outputs, p: parameters, e: error } = result as Readonly<Record<string, unknown>>;
  if (error !== undefined) return { error: readError(error) };
  const { tensors, slots } = readTensors(outputs, place);
  const given = readParameters(parameters);
  return {
    outputs: tensors,
    ...(given === undefined ? {} : { parameters: given }),
    ...(slots.length === 0 ? {} : { release: heldSlots(slots, place, freeSlots) }),
  };
}

/** `[code, message]`. @throws RangeError */
export function readError(error: unknown): ServerError {
  if (!Array.isArray(error) || error.length !== 2) throw new RangeError("Expected an error");
  const [number, message] = error as unknown[];
  const code = typeof number === "number" ? CODES[number] : undefined;
  if (code === undefined || typeof message !== "string") {
    throw new RangeError(`Expected a code and a message, got ${number}`);
  }
  return new ServerError(code, clipText(message));
}

function heldSlots(
  slots: readonly PeerSlot[],
  { peer }: TensorPlace,
  freeSlots: FreeSlots,
): () => void {
  peer!.hold();
  let isHeld = true;
  return () => {
    if (!isHeld) return;
    isHeld = false;
    freeSlots(slots);
    peer!.release();
  };
}
