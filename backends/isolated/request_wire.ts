import type { ParameterValue } from "../../proto/infer.ts";
import type { Tensor } from "../../proto/tensor.ts";
import type { ExecuteRequest } from "../backend.ts";
import type { WireTensor } from "../process/frame.ts";
import { END, type RequestHead, requestHead, START } from "../process/request_head.ts";
import { type PeerSlot, readTensors, type TensorPlace } from "../process/tensor_wire.ts";
import { readParameters, readWireNumber, wireNumber } from "../process/wire_values.ts";

const NO_PARAMETERS: Readonly<Record<string, ParameterValue>> = Object.freeze({});

/** The JSON of a request (wire.md); what has its default is left out. */
export interface WireRequest extends RequestHead {
  b?: number;
  q?: number;
}

/** A request for the process; its tensors are in place. */
export function wireRequest(
  request: ExecuteRequest,
  number: number,
  tensors: WireTensor[],
): WireRequest {
  const wire: WireRequest = requestHead(request, number, tensors);
  const { batchSize, correlationId, priority } = request;
  if (batchSize !== 1) wire.b = batchSize;
  if (correlationId !== 0n) wire.c = wireNumber(correlationId);
  if (priority !== 0) wire.q = priority;
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
