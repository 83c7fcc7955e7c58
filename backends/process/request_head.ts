import type { ExecuteRequest } from "../backend.ts";
import type { WireTensor } from "./frame.ts";
import { formatParameters, type WireNumber } from "./wire_values.ts";

/** Bits of `g`. */
export const START = 1;
export const END = 2;

/** What the JSON of a request has in all protocols (wire.md); what has its default is left out. */
export interface RequestHead {
  i: number;
  n: WireTensor[];
  o: readonly string[];
  id?: string;
  /** Which correlation ids are left out is the protocol's own matter. */
  c?: WireNumber;
  g?: number;
  t?: number;
  p?: string;
  x?: string;
  y?: true;
}

/** A request for a process, without its correlation id; its tensors are in place. */
export function requestHead(
  request: ExecuteRequest,
  number: number,
  tensors: WireTensor[],
): RequestHead {
  const head: RequestHead = { i: number, n: tensors, o: request.outputs };
  const { id, timeoutUs, trace } = request;
  if (id !== "") head.id = id;
  const flags = (request.sequenceStart ? START : 0) | (request.sequenceEnd ? END : 0);
  if (flags !== 0) head.g = flags;
  if (timeoutUs > 0) head.t = timeoutUs;
  for (const _key in request.parameters) {
    head.p = formatParameters(request.parameters);
    break;
  }
  if (trace !== undefined) {
    head.y = true;
    if (trace.context !== undefined) head.x = trace.context;
  }
  return head;
}
