import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import {
  type InferTensorContentsSchema,
  ModelInferRequestSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { checkInferBody, checkInferMessage } from "./connect_limits.ts";
import { joinParts } from "../../proto/join_parts.ts";
import { frameOf } from "./message_frame.ts";

function encode(
  contents: MessageInitShape<typeof InferTensorContentsSchema>,
  raw: Uint8Array[] = [],
): Uint8Array {
  const inputs = [{ name: "X", datatype: "BYTES", shape: [1n], contents }];
  return toBinary(
    ModelInferRequestSchema,
    create(ModelInferRequestSchema, { modelName: "m", inputs, rawInputContents: raw }),
  );
}

const REFUSAL = { code: "INVALID_ARG", message: /^explicit tensor data have more than / };
const MANY_TEXTS = encode({
  bytesContents: Array.from({ length: 65_537 }, () => new Uint8Array(0)),
});

Deno.test("checkInferMessage() refuses typed contents with too many elements or bytes", () => {
  assert.throws(() => checkInferMessage(MANY_TEXTS), REFUSAL);
  const fp32Contents = new Array<number>(1_048_577).fill(1);
  assert.throws(() => checkInferMessage(encode({ fp32Contents })), REFUSAL);
  checkInferMessage(encode({ fp32Contents: fp32Contents.slice(100) }));
  checkInferMessage(encode({}, [new Uint8Array(8_000_000)]));
});

Deno.test("checkInferMessage() refuses too many inputs and what cannot be parsed", () => {
  const inputs = Array.from({ length: 4097 }, () => ({}));
  const message = toBinary(ModelInferRequestSchema, create(ModelInferRequestSchema, { inputs }));
  assert.throws(() => checkInferMessage(message), { message: /more inputs than the 4096 allowed/ });
  assert.throws(() => checkInferMessage(Uint8Array.of(0x0b, 0x0b)), { code: "INTERNAL" });
});

Deno.test("checkInferBody() looks into every frame that is whole and not compressed", () => {
  const small = encode({ bytesContents: [new Uint8Array(3)] });
  const web = { contentType: "application/grpc-web+proto", isCompressed: false };
  const framed = (...messages: Uint8Array[]) => joinParts(messages.flatMap(frameOf));
  checkInferBody(framed(small, small), web);
  assert.throws(() => checkInferBody(framed(small, MANY_TEXTS), web), REFUSAL);
  checkInferBody(framed(small, MANY_TEXTS).subarray(0, -1), web);
  const flagged = framed(MANY_TEXTS);
  flagged[0] = 1;
  checkInferBody(flagged, web);
  checkInferBody(new Uint8Array(4), web);
});

Deno.test("checkInferBody() takes a unary body of Connect as the message", () => {
  const unary = { contentType: "application/proto", isCompressed: false };
  assert.throws(() => checkInferBody(MANY_TEXTS, unary), REFUSAL);
  checkInferBody(MANY_TEXTS, { ...unary, isCompressed: true });
});
