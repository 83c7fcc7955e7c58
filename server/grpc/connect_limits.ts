import { parseInferMessage } from "../../proto/grpc_codec.ts";
import { WireReader } from "../../proto/grpc_codec_wire.ts";
import { ServerError } from "../../proto/status.ts";
import { PREFIX_BYTES } from "./message_frame.ts";

/**
 * Largest message as JSON: it is parsed as a whole on the thread that serves everyone, about half a second for this
 * much. REST has no such bound.
 */
export const MAX_JSON_MESSAGE_BYTES = 2 * 1024 * 1024;

/** Largest infer message in binary form: everything is copied on the way. */
export const MAX_CONNECT_MESSAGE_BYTES = 64 * 1024 * 1024;

/** Largest request body: several messages of a stream, each within its own bound. */
export const MAX_CONNECT_BODY_BYTES = 4 * MAX_CONNECT_MESSAGE_BYTES;

/** Typed contents of one message: their elements become JavaScript values, and texts objects. */
const MAX_TYPED_BYTES = 4 * 1024 * 1024;
const MAX_TYPED_FIELDS = 65_536;

const COMPRESSED = 1;

/**
 * Refuses an infer message with more parts than the generated reader, which makes an object of each, can make in
 * reasonable time and memory.
 * @throws ServerError
 */
export function checkInferMessage(message: Uint8Array): void {
  let byteSize = 0;
  let fieldCount = 0;
  for (const { contents } of parseInferMessage(message).inputs) {
    for (const each of contents ?? []) {
      byteSize += each.length;
      if (byteSize > MAX_TYPED_BYTES) break;
      fieldCount += countFields(each);
    }
  }
  if (byteSize <= MAX_TYPED_BYTES && fieldCount <= MAX_TYPED_FIELDS) return;
  throw new ServerError(
    "INVALID_ARG",
    `explicit tensor data have more than ${MAX_TYPED_BYTES} bytes or ${MAX_TYPED_FIELDS} fields: ` +
      "larger tensors have to be sent as raw_input_contents",
  );
}

function countFields(bytes: Uint8Array): number {
  const reader = new WireReader(bytes);
  let count = 0;
  for (; !reader.done; count++) reader.skip(reader.tag());
  return count;
}

/**
 * Does the same for every message of a request body that is not compressed; those that are have to be checked when they
 * are decompressed.
 */
export function checkInferBody(
  body: Uint8Array,
  { contentType, isCompressed }: { contentType: string; isCompressed: boolean },
): void {
  if (contentType === "application/proto") {
    if (!isCompressed) checkInferMessage(body);
    return;
  }
  for (let at = 0; at + PREFIX_BYTES <= body.length;) {
    const view = new DataView(body.buffer, body.byteOffset + at, PREFIX_BYTES);
    const start = at + PREFIX_BYTES;
    at = start + view.getUint32(1);
    // Frames that are cut off or flagged otherwise are for the protocol to refuse.
    const isWhole = at <= body.length;
    if (isWhole && (view.getUint8(0) & COMPRESSED) === 0) {
      checkInferMessage(body.subarray(start, at));
    }
  }
}
