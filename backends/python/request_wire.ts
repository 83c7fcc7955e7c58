import type { ExecuteRequest } from "../backend.ts";
import type { WireTensor } from "../process/frame.ts";
import {
  formatParameters,
  readWireNumber,
  type WireNumber,
  wireNumber,
} from "../process/wire_values.ts";

const START = 1;
const END = 2;

/** The JSON of a request (wire.md); what has its default is left out. */
export interface WireRequest {
  i: number;
  n: WireTensor[];
  o: readonly string[];
  id?: string;
  c?: WireNumber;
  g?: number;
  t?: WireNumber;
  p?: string;
  x?: string;
  y?: true;
}

/** A request as the process gets it; its tensors are in place. */
export function wireRequest(
  request: ExecuteRequest,
  number: number,
  tensors: WireTensor[],
): WireRequest {
  const wire: WireRequest = { i: number, n: tensors, o: request.outputs };
  if (request.id !== "") wire.id = request.id;
  const { correlationId, timeoutUs, trace } = request;
  if (correlationId !== 0n && correlationId !== "") wire.c = wireNumber(correlationId);
  const flags = (request.sequenceStart ? START : 0) | (request.sequenceEnd ? END : 0);
  if (flags !== 0) wire.g = flags;
  if (timeoutUs > 0) wire.t = timeoutUs;
  for (const _key in request.parameters) {
    wire.p = formatParameters(request.parameters);
    break;
  }
  if (trace !== undefined) {
    wire.y = true;
    if (trace.context !== undefined) wire.x = trace.context;
  }
  return wire;
}

/** Flags of a call: START and END. */
export function readFlags(flags: unknown): { sequenceStart: boolean; sequenceEnd: boolean } {
  const bits = typeof flags === "number" ? flags : 0;
  return { sequenceStart: (bits & START) !== 0, sequenceEnd: (bits & END) !== 0 };
}

/** A correlation id of a call. @throws RangeError */
export function readCorrelationId(id: unknown): bigint | string {
  if (id === undefined) return 0n;
  if (typeof id === "string") return id;
  const number = readWireNumber(id);
  if (number !== undefined) return number;
  throw new RangeError("Expected a correlation id");
}

/** A timeout of a call in microseconds. */
export function readTimeout(timeout: unknown): number {
  const number = readWireNumber(timeout);
  return number === undefined ? 0 : Number(number);
}
