import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { type InferTensorContentsSchema, ModelInferRequestSchema } from "./gen/grpc_service_pb.ts";
import { decodeInferRequest, parseInferMessage } from "./grpc_codec.ts";
import { ServerError } from "./status.ts";

type RequestInit = MessageInitShape<typeof ModelInferRequestSchema>;
type Contents = MessageInitShape<typeof InferTensorContentsSchema>;

function encode(init: RequestInit): Uint8Array {
  return toBinary(
    ModelInferRequestSchema,
    create(ModelInferRequestSchema, { modelName: "m", ...init }),
  );
}

function decode(init: RequestInit) {
  return decodeInferRequest(parseInferMessage(encode(init)));
}

function typed(datatype: string, contents: Contents): Uint8Array {
  const shape = [1n];
  return decode({ inputs: [{ name: "I", datatype, shape, contents }] }).inputs[0]!.data;
}

function refusal(run: () => unknown): [string, string] {
  try {
    run();
  } catch (error) {
    assert(error instanceof ServerError, String(error));
    return [error.code, error.message];
  }
  throw new assert.AssertionError({ message: "No error" });
}

function bytes(...values: number[]): Uint8Array {
  return new Uint8Array(values);
}

Deno.test("decodeInferRequest() converts every kind of typed contents", () => {
  const view = (size: number, fill: (view: DataView) => void) => {
    const data = new DataView(new ArrayBuffer(size));
    fill(data);
    return new Uint8Array(data.buffer);
  };
  const text = new TextEncoder();
  const cases: [string, Contents, Uint8Array][] = [
    ["BOOL", { boolContents: [true, false, true] }, bytes(1, 0, 1)],
    ["INT8", { intContents: [300, -129, 128, 5] }, bytes(44, 127, 128, 5)],
    ["INT16", { intContents: [-32768, 32767] }, bytes(0, 0x80, 0xff, 0x7f)],
    ["INT32", { intContents: [-2147483648, -1] }, bytes(0, 0, 0, 0x80, 255, 255, 255, 255)],
    ["UINT8", { uintContents: [0, 255, 256] }, bytes(0, 255, 0)],
    ["UINT16", { uintContents: [0x8000, 65535] }, bytes(0, 0x80, 255, 255)],
    ["UINT32", { uintContents: [4294967295, 1] }, bytes(255, 255, 255, 255, 1, 0, 0, 0)],
    [
      "INT64",
      { int64Contents: [-(2n ** 63n), -1n, 2n ** 63n - 1n, 2n ** 53n + 1n] },
      view(32, (data) => {
        data.setBigInt64(0, -(2n ** 63n), true);
        data.setBigInt64(8, -1n, true);
        data.setBigInt64(16, 2n ** 63n - 1n, true);
        data.setBigInt64(24, 2n ** 53n + 1n, true);
      }),
    ],
    [
      "UINT64",
      { uint64Contents: [2n ** 64n - 1n, 2n ** 63n] },
      view(16, (data) => {
        data.setBigUint64(0, 2n ** 64n - 1n, true);
        data.setBigUint64(8, 2n ** 63n, true);
      }),
    ],
    [
      "FP32",
      { fp32Contents: [0.5, -1.25, Infinity] },
      new Uint8Array(new Float32Array([0.5, -1.25, Infinity]).buffer),
    ],
    [
      "FP64",
      { fp64Contents: [0.1, -1e300] },
      new Uint8Array(new Float64Array([0.1, -1e300]).buffer),
    ],
    [
      "BYTES",
      { bytesContents: [text.encode("ab"), bytes(), bytes(255)] },
      bytes(2, 0, 0, 0, 97, 98, 0, 0, 0, 0, 1, 0, 0, 0, 255),
    ],
    ["INT64", {}, bytes()],
  ];
  for (const [datatype, contents, expected] of cases) {
    assert.deepEqual(typed(datatype, contents), expected, datatype);
  }
});

Deno.test("decodeInferRequest() reads typed contents that are split, not packed or odd booleans", () => {
  const decodeWire = (datatype: string, ...contents: number[][]) => {
    const name = [10, 1, 73, 18, datatype.length, ...new TextEncoder().encode(datatype)];
    const parts = contents.flatMap((part) => [42, part.length, ...part]);
    const input = [...name, ...parts];
    const message = bytes(10, 1, 109, 42, input.length, ...input);
    return decodeInferRequest(parseInferMessage(message)).inputs[0]!.data;
  };
  assert.deepEqual(decodeWire("INT8", [16, 1, 18, 2, 2, 3], [16, 4]), bytes(1, 2, 3, 4));
  assert.deepEqual(decodeWire("BOOL", [10, 3, 0x80, 1, 7]), bytes(1, 1));
  assert.deepEqual(
    decodeWire("FP32", [0x35, 1, 2, 3, 4, 50, 4, 5, 6, 7, 8]),
    bytes(1, 2, 3, 4, 5, 6, 7, 8),
  );
  assert.deepEqual(decodeWire("FP64", [57, 1, 2, 3, 4, 5, 6, 7, 8]), bytes(1, 2, 3, 4, 5, 6, 7, 8));
  assert.deepEqual(
    decodeWire("INT64", [24, 1, 26, 1, 2]),
    bytes(1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0),
  );
  assert.deepEqual(decodeWire("UINT8", [0x4a, 1, 5, 32, 9]), bytes(9));
  for (const broken of [[18, 1, 0x80], [50, 3, 1, 2, 3], [18, 11, ...new Array(11).fill(0x80)]]) {
    assert.equal(refusal(() => decodeWire("INT8", broken))[0], "INTERNAL");
  }
});

Deno.test("decodeInferRequest() does not copy packed FP32 contents", () => {
  const message = encode({
    inputs: [{ name: "I", datatype: "FP32", shape: [2n], contents: { fp32Contents: [1, 2] } }],
  });
  const { data } = decodeInferRequest(parseInferMessage(message)).inputs[0]!;
  assert.equal(data.buffer, message.buffer);
});

Deno.test("decodeInferRequest() converts texts of any length, and varints of all lengths", () => {
  const text = (length: number) => new Uint8Array(length).fill(length & 0x7f);
  const texts = [0, 1, 63, 64, 65, 127, 128, 300, 70_000].map(text);
  const expected = texts.flatMap((each) => {
    const prefix = new Uint8Array(4);
    new DataView(prefix.buffer).setUint32(0, each.length, true);
    return [...prefix, ...each];
  });
  assert.deepEqual(typed("BYTES", { bytesContents: texts }), bytes(...expected));
  const values = Array.from({ length: 64 }, (_, shift) => 1n << BigInt(shift));
  const signed = values.map((value) => BigInt.asIntN(64, value));
  const words = new Uint8Array(new BigUint64Array(values).buffer);
  assert.deepEqual(typed("UINT64", { uint64Contents: values }), words);
  assert.deepEqual(typed("INT64", { int64Contents: signed }), words);
});

Deno.test("decodeInferRequest() refuses typed contents that take too long to convert", () => {
  const big = new Uint8Array(67_108_865);
  const contents = { bytesContents: [big] };
  assert.deepEqual(refusal(() => typed("BYTES", contents)), [
    "INVALID_ARG",
    "explicit tensor data for input tensor 'I' for model 'm' take 67108870 bytes, expected at " +
    "most 67108864: larger tensors have to be sent as raw_input_contents",
  ]);
});

Deno.test("parseInferMessage() refuses messages with too many fields, whichever they are", () => {
  const repeated = (field: number[], count: number) => {
    const message = new Uint8Array(field.length * count);
    for (let index = 0; index < count; index++) message.set(field, index * field.length);
    return message;
  };
  const within = (tag: number, content: Uint8Array) => {
    const { length } = content;
    const head = [tag, length & 0x7f | 0x80, length >> 7 & 0x7f | 0x80, length >> 14];
    return new Uint8Array([...head, ...content]);
  };
  const error = ["INVALID_ARG", "inference request has more than 65536 fields in one message"];
  for (const field of [[0x7a, 0], [0x0a, 1, 0x61], [0x22, 0]]) {
    parseInferMessage(repeated(field, 65_536));
    assert.deepEqual(refusal(() => parseInferMessage(repeated(field, 65_537))), error);
  }
  for (const tag of [0x2a, 0x32]) {
    parseInferMessage(within(tag, repeated([0x7a, 0], 65_536)));
    const many = within(tag, repeated([0x7a, 0], 65_537));
    assert.deepEqual(refusal(() => parseInferMessage(many)), error);
  }
});
