import type { ParameterValue } from "../../proto/infer.ts";
import type { Tensor } from "../../proto/tensor.ts";
import type { ExecuteRequest } from "../backend.ts";
import type { WireTensor } from "../process/frame.ts";
import { type PeerSlot, readTensors, type TensorPlace } from "../process/tensor_wire.ts";
import {
  formatParameters,
  readParameters,
  readWireNumber,
  type WireNumber,
  wireNumber,
} from "../process/wire_values.ts";

const START = 1;
const END = 2;
const NO_PARAMETERS: Readonly<Record<string, ParameterValue>> = Object.freeze({});

/** The JSON of a request (wire.md); what has its default is left out. */
export interface WireRequest {
  i: number;
  n: WireTensor[];
  o: readonly string[];
  b?: number;
  id?: string;
  c?: WireNumber;
  g?: number;
  q?: number;
  t?: number;
  p?: string;
  x?: string;
  y?: true;
}

/** A request for the process; its tensors are in place. */
export function wireRequest(
  request: ExecuteRequest,
  number: number,
  tensors: WireTensor[],
): WireRequest {
  const wire: WireRequest = { i: number, n: tensors, o: request.outputs };
  const { batchSize, id, correlationId, priority, timeoutUs, trace } = request;
  if (batchSize !== 1) wire.b = batchSize;
  if (id !== "") wire.id = id;
  if (correlationId !== 0n) wire.c = wireNumber(correlationId);
  const flags = (request.sequenceStart ? START : 0) | (request.sequenceEnd ? END : 0);
  if (flags !== 0) wire.g = flags;
  if (priority !== 0) wire.q = priority;
  if (timeoutUs !== 0) wire.t = timeoutUs;
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

/** A request in the process: everything but its way back. */
export interface ReadRequest {
  readonly number: number;
  /** Of the server's memory that its inputs lie in. */
  readonly slots: readonly PeerSlot[];
  readonly isTraced: boolean;
  readonly traceContext: string | undefined;
  readonly fields: Omit<ExecuteRequest, "signal" | "trace" | "send">;
}

/** What {@linkcode wireRequest} made. @throws RangeError, SyntaxError */
export function readRequest(wire: WireRequest, place: TensorPlace): ReadRequest {
  const { tensors, slots } = readTensors(wire.n, place);
  const { g: flags = 0, id = "", c } = wire;
  return {
    number: wire.i,
    slots,
    isTraced: wire.y === true,
    traceContext: wire.x,
    fields: {
      id,
      correlationId: typeof c === "string" ? c : readWireNumber(c) ?? 0n,
      batchSize: wire.b ?? 1,
      inputs: tensors as readonly Tensor[],
      outputs: wire.o,
      parameters: readParameters(wire.p) ?? NO_PARAMETERS,
      sequenceStart: (flags & START) !== 0,
      sequenceEnd: (flags & END) !== 0,
      priority: wire.q ?? 0,
      timeoutUs: wire.t ?? 0,
    },
  };
}
