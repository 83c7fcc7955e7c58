import type { ExecuteRequest } from "../backend.ts";
import type { FrameWriter } from "./frame_writer.ts";
import { FRAME } from "./worker_protocol.ts";

/** Bits of the flags of a request in a frame. */
export const REQUEST_FLAG = { start: 1, end: 2, traced: 4 } as const;

/** Writes a batch whose requests are numbered from `first` on. */
export function writeBatch(
  frame: FrameWriter,
  first: number,
  requests: readonly ExecuteRequest[],
): void {
  frame.u8(FRAME.batch).u32(first).u32(requests.length);
  for (const request of requests) writeRequest(frame, request);
}

function writeRequest(frame: FrameWriter, request: ExecuteRequest): void {
  const { trace, inputs } = request;
  frame.text(request.id).correlationId(request.correlationId).u32(request.batchSize);
  frame.u8(
    (request.sequenceStart ? REQUEST_FLAG.start : 0) |
      (request.sequenceEnd ? REQUEST_FLAG.end : 0) |
      (trace === undefined ? 0 : REQUEST_FLAG.traced),
  );
  if (trace !== undefined) frame.text(trace.context ?? "");
  frame.f64(request.priority).f64(request.timeoutUs);
  frame.parameters(request.parameters).texts(request.outputs);
  frame.u32(inputs.length);
  for (const { name, datatype, shape, data } of inputs) {
    frame.text(name).tensor(datatype, shape, data);
  }
}
