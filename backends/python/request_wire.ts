import type { ExecuteRequest } from "../backend.ts";
import type { WireTensor } from "../process/frame.ts";
import { END, type RequestHead, requestHead, START } from "../process/request_head.ts";
import { readWireNumber, wireNumber } from "../process/wire_values.ts";

/** A request as the process gets it; its tensors are in place. */
export function wireRequest(
  request: ExecuteRequest,
  number: number,
  tensors: WireTensor[],
): RequestHead {
  const wire = requestHead(request, number, tensors);
  const { correlationId } = request;
  if (correlationId !== 0n && correlationId !== "") wire.c = wireNumber(correlationId);
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
