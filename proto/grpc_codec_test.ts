import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { ModelInferRequestSchema } from "./gen/grpc_service_pb.ts";
import { decodeInferRequest, MAX_RANK, MAX_TENSORS, parseInferMessage } from "./grpc_codec.ts";
import { ServerError } from "./status.ts";

type RequestInit = MessageInitShape<typeof ModelInferRequestSchema>;
type Parameters = NonNullable<RequestInit["parameters"]>;

function encode(init: RequestInit): Uint8Array {
  return toBinary(
    ModelInferRequestSchema,
    create(ModelInferRequestSchema, { modelName: "m", ...init }),
  );
}

function decode(init: RequestInit) {
  return decodeInferRequest(parseInferMessage(encode(init)));
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

Deno.test("parseInferMessage() reads what the generated code writes", () => {
  const message = parseInferMessage(encode({
    modelName: "modèle",
    modelVersion: "3",
    id: "ż 🚀 " + "x".repeat(200),
    inputs: [{ name: "A", datatype: "INT8", shape: [2n, -1n, 9007199254740993n] }],
    outputs: [{ name: "B" }],
    rawInputContents: [bytes(1, 2), bytes()],
  }));
  assert.equal(message.modelName, "modèle");
  assert.equal(message.modelVersion, "3");
  assert.equal(message.id, "ż 🚀 " + "x".repeat(200));
  assert.deepEqual(message.inputs[0]!.shape, [2, -1, 9007199254740993n]);
  assert.equal(message.outputs[0]!.name, "B");
  assert.deepEqual(message.rawContents, [bytes(1, 2), bytes()]);
});

Deno.test("parseInferMessage() takes a shape that is not packed, and skips unknown fields", () => {
  const input = [10, 1, 73, 18, 4, 73, 78, 84, 56, 24, 1, 24, 2];
  const unknown = [
    0xf8,
    1,
    5,
    0xfb,
    1,
    8,
    1,
    0xfc,
    1,
    0xf9,
    1,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0xfd,
    1,
    0,
    0,
    0,
    0,
  ];
  const message = parseInferMessage(bytes(42, input.length, ...input, ...unknown, 58, 1, 9));
  assert.deepEqual(message.inputs[0]!.shape, [1, 2]);
  assert.deepEqual(message.rawContents, [bytes(9)]);
});

Deno.test("parseInferMessage() refuses what is no message", () => {
  const broken = [
    [10],
    [10, 5, 65],
    [10, 0x80],
    [10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    [10, 2, 0xff, 0xfe],
    [0],
    [4],
    [0x0b],
    [0x0c],
    [42, 2, 26, 5],
    [58, 0xff, 0xff, 0xff, 0xff, 0x0f],
    [0x0f],
    Array.from({ length: 5000 }, () => 0x0b),
  ];
  for (const values of broken) {
    assert.deepEqual(refusal(() => parseInferMessage(bytes(...values))), [
      "INTERNAL",
      "Unable to parse request",
    ], String(values.slice(0, 20)));
  }
});

Deno.test("parseInferMessage() bounds tensors, dimensions and parameters", () => {
  const many = new Uint8Array(2 * (MAX_TENSORS + 1));
  for (const tag of [42, 50, 58]) {
    many.forEach((_, index) => many[index] = index % 2 === 0 ? tag : 0);
    assert.equal(refusal(() => parseInferMessage(many))[0], "INVALID_ARG");
  }
  const shape = new Array(MAX_RANK + 1).fill(1n);
  const wide = encode({ inputs: [{ name: "I", datatype: "INT8", shape }] });
  assert.equal(refusal(() => parseInferMessage(wide))[0], "INVALID_ARG");
  const parameters: Parameters = {};
  for (let index = 0; index < 1025; index++) {
    parameters[`p${index}`] = { parameterChoice: { case: "boolParam", value: true } } as never;
  }
  assert.equal(refusal(() => parseInferMessage(encode({ parameters })))[0], "INVALID_ARG");
});

Deno.test("decodeInferRequest() hands out raw contents as views, in the order of the inputs", () => {
  const message = encode({
    inputs: [
      { name: "B", datatype: "FP16", shape: [1n] },
      { name: "A", datatype: "BYTES", shape: [] },
    ],
    rawInputContents: [bytes(1, 2), bytes(1, 0, 0, 0, 65), bytes(9)],
  });
  const { inputs } = decodeInferRequest(parseInferMessage(message));
  assert.deepEqual(inputs.map(({ name, data }) => [name, data]), [
    ["B", bytes(1, 2)],
    ["A", bytes(1, 0, 0, 0, 65)],
  ]);
  assert.equal(inputs[0]!.data.buffer, message.buffer);
  assert.deepEqual(inputs[1]!.shape, []);
});

Deno.test("decodeInferRequest() refuses input data with the texts of the protocol", () => {
  const input = { name: "I", datatype: "FP32", shape: [1n] };
  const int64 = (value: bigint) => ({ parameterChoice: { case: "int64Param", value } }) as const;
  const text = (value: string) => ({ parameterChoice: { case: "stringParam", value } }) as const;
  const shm = (parameters: Record<string, unknown>) =>
    ({ inputs: [{ ...input, parameters }] }) as RequestInit;
  const cases: [RequestInit, string][] = [
    [{ inputs: [input] }, "unable to find data for input tensor 'I' for model 'm' in request."],
    [
      { inputs: [{ ...input, contents: {} }], rawInputContents: [bytes(1)] },
      "contents field must not be specified when using raw_input_contents for 'I' for model 'm'",
    ],
    [
      { inputs: [{ ...input, contents: { fp64Contents: [1] } }] },
      "unexpected explicit tensor data for input tensor 'I' for model 'm' of type 'FP64', expected datatype 'FP32'",
    ],
    [
      { inputs: [{ ...input, datatype: "UINT8", contents: { intContents: [1] } }] },
      "unexpected explicit tensor data for input tensor 'I' for model 'm' of type 'INT32', expected datatype 'UINT8'",
    ],
    [
      { inputs: [{ ...input, datatype: "FP16", contents: { fp32Contents: [1] } }] },
      "unexpected explicit tensor data for input tensor 'I' for model 'm' of type 'FP32', expected datatype 'FP16'",
    ],
    [
      { inputs: [{ ...input, contents: { fp32Contents: [1], fp64Contents: [1] } }] },
      "unexpected explicit tensor data for input tensor 'I' for model 'm', binary data was already supplied.",
    ],
    [
      shm({ "shared_memory_region": int64(1n) }),
      "invalid value type for 'shared_memory_region' parameter for tensor 'I', expected string_param.",
    ],
    [
      shm({ "shared_memory_region": text("r"), "shared_memory_byte_size": text("4") }),
      "invalid value type for 'shared_memory_byte_size' parameter for tensor 'I', expected int64_param.",
    ],
    [
      shm({ "shared_memory_region": text("r") }),
      "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'I'",
    ],
    [
      shm({ "shared_memory_offset": int64(1n) }),
      "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for tensor 'I'",
    ],
    [
      {
        inputs: [{
          ...input,
          contents: {},
          parameters: {
            "shared_memory_region": text("r"),
            "shared_memory_byte_size": int64(4n),
          } as never,
        }],
      },
      "unexpected 'content' provided when using shared memory for input tensor 'I' for model 'm'",
    ],
  ];
  for (const [init, message] of cases) {
    assert.deepEqual(refusal(() => decode(init)), ["INVALID_ARG", message]);
  }
});

Deno.test("decodeInferRequest() refuses unknown datatypes and dimensions beyond exact numbers", () => {
  const raw = { rawInputContents: [bytes(1)] };
  const one = (datatype: string, shape: bigint[]) =>
    refusal(() => decode({ ...raw, id: "9", inputs: [{ name: "I", datatype, shape }] }));
  const [code, text] = one("FLOAT", [1n]);
  assert.equal(code, "INVALID_ARG");
  assert.match(text, /^\[request id: 9\] inference input 'I' data-type is '<invalid>'/);
  assert.match(
    one("FP32", [8n, 4611686018427387904n])[1],
    /^\[request id: 9\] invalid shape for input 'I' for model 'm': shape \[8,4611686018427387904\] causes/,
  );
  assert.match(one("FP32", [-4611686018427387904n])[1], /invalid dimensions$/);
});
