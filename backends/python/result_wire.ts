import type { ParameterValue } from "../../proto/infer.ts";
import { ServerError, type StatusCode } from "../../proto/status.ts";
import type { ExecuteResponse } from "../backend.ts";
import { type PeerSlot, readTensors, type TensorPlace } from "../process/tensor_wire.ts";

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

const TEXT_LENGTH_MAX = 64 * 1024;

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

/** The text of an error; models may make texts of any length, and no client takes them all. */
export function clipText(text: string): string {
  return text.length <= TEXT_LENGTH_MAX ? text : `${text.slice(0, TEXT_LENGTH_MAX)}…`;
}

/** JSON text of parameters. Numbers without a point or exponent are integers of any size. */
export function readParameters(
  text: unknown,
): Readonly<Record<string, ParameterValue>> | undefined {
  if (text === undefined || text === "" || text === "{}") return undefined;
  if (typeof text !== "string") throw new RangeError("Expected parameters as JSON text");
  const parsed: unknown = JSON.parse(text, reviveNumber as Parameters<typeof JSON.parse>[1]);
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    throw new RangeError("Expected parameters to be a JSON object");
  }
  for (const [key, value] of Object.entries(parsed)) {
    if (!["boolean", "bigint", "number", "string"].includes(typeof value)) {
      throw new RangeError(`Parameter '${key}' is no bool, int, double or string`);
    }
  }
  return parsed as Record<string, ParameterValue>;
}

/** JSON text of parameters, with a point in every double. */
export function formatParameters(parameters: Readonly<Record<string, ParameterValue>>): string {
  const members: string[] = [];
  for (const key in parameters) {
    members.push(`${JSON.stringify(key)}:${formatValue(parameters[key]!)}`);
  }
  return `{${members.join(",")}}`;
}

function formatValue(value: ParameterValue): string {
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "number") return JSON.stringify(value);
  const text = String(value);
  return /^-?\d+$/.test(text) ? `${text}.0` : text;
}

/** The third argument has the text of a number; the types of the language do not know it yet. */
function reviveNumber(_key: string, value: unknown, context: { readonly source: string }): unknown {
  if (typeof value !== "number") return value;
  return /[.eE]/.test(context.source) ? value : BigInt(context.source);
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
