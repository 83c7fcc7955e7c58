import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import {
  InferTensorContentsSchema,
  ModelInferRequestSchema,
  ModelInferResponseSchema,
  ModelStreamInferResponseSchema,
} from "./gen/grpc_service_pb.ts";
import { decodeInferRequest, MAX_RANK, MAX_TENSORS, parseInferMessage } from "./grpc_codec.ts";
import { encodeInferResponse, encodeStreamFailure, PREFIX_BYTES } from "./grpc_codec_response.ts";
import type { InferResponse } from "./infer.ts";
import { ServerError } from "./status.ts";

type RequestInit = MessageInitShape<typeof ModelInferRequestSchema>;
type Contents = MessageInitShape<typeof InferTensorContentsSchema>;
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
      shm({ shared_memory_region: int64(1n) }),
      "invalid value type for 'shared_memory_region' parameter for tensor 'I', expected string_param.",
    ],
    [
      shm({ shared_memory_region: text("r"), shared_memory_byte_size: text("4") }),
      "invalid value type for 'shared_memory_byte_size' parameter for tensor 'I', expected int64_param.",
    ],
    [
      shm({ shared_memory_region: text("r") }),
      "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor 'I'",
    ],
    [
      shm({ shared_memory_offset: int64(1n) }),
      "'shared_memory_offset' can not be specified without 'shared_memory_region' parameter for tensor 'I'",
    ],
    [
      {
        inputs: [{
          ...input,
          contents: {},
          parameters: {
            shared_memory_region: text("r"),
            shared_memory_byte_size: int64(4n),
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

Deno.test("decodeInferRequest() sorts request parameters", () => {
  const choice = (kind: string, value: unknown) => ({ parameterChoice: { case: kind, value } });
  const run = (parameters: Record<string, unknown>) => decode({ parameters } as RequestInit);
  const request = run({
    sequence_id: choice("int64Param", -1n),
    sequence_start: choice("boolParam", true),
    sequence_end: choice("boolParam", true),
    priority: choice("uint64Param", 3n),
    timeout: choice("int64Param", 1000n),
    triton_enable_empty_final_response: choice("boolParam", true),
    a: choice("int64Param", 5n),
    b: choice("doubleParam", 0.25),
    c: choice("stringParam", "x"),
    __proto__x: choice("boolParam", false),
  });
  assert.equal(request.correlationId, 2n ** 64n - 1n);
  assert.deepEqual([request.sequenceStart, request.sequenceEnd], [true, true]);
  assert.deepEqual([request.priority, request.timeoutUs], [3, 1000]);
  assert.deepEqual({ ...request.parameters }, { a: 5n, b: 0.25, c: "x", __proto__x: false });
  assert.equal(run({ sequence_id: choice("stringParam", "abc") }).correlationId, "abc");
  const cases: [Record<string, unknown>, string, string][] = [
    [
      { sequence_id: choice("boolParam", true) },
      "INVALID_ARG",
      "invalid value type for 'sequence_id' parameter, expected int64_param or string_param.",
    ],
    [
      { sequence_id: choice("stringParam", "x".repeat(129)) },
      "UNSUPPORTED",
      "string correlation ID cannot be longer than 128 characters",
    ],
    [
      { sequence_start: choice("int64Param", 1n) },
      "INVALID_ARG",
      "invalid value type for 'sequence_start' parameter, expected bool_param.",
    ],
    [
      { priority: choice("stringParam", "1") },
      "INVALID_ARG",
      "invalid value type for 'priority' parameter, expected int64_param or uint64_param.",
    ],
    [
      { priority: choice("int64Param", -1n) },
      "INVALID_ARG",
      "invalid value for 'priority', expected value >= 0.",
    ],
    [
      { timeout: choice("uint64Param", 1n) },
      "INVALID_ARG",
      "invalid value type for 'timeout' parameter, expected int64_param.",
    ],
    [
      { n: choice("uint64Param", 1n) },
      "INVALID_ARG",
      "invalid value type for 'n' parameter, expected int64_param, bool_param, or string_param.",
    ],
    [
      { n: {} },
      "INVALID_ARG",
      "invalid value type for 'n' parameter, expected int64_param, bool_param, or string_param.",
    ],
    [
      { triton_x: choice("boolParam", true) },
      "INVALID_ARG",
      "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following " +
      "keys starting with 'triton_' are allowed: triton_enable_empty_final_response",
    ],
  ];
  for (const [parameters, code, message] of cases) {
    assert.deepEqual(refusal(() => run(parameters)), [code, message]);
  }
});

Deno.test("decodeInferRequest() reads what is asked of outputs", () => {
  const int64 = (value: bigint) => ({ parameterChoice: { case: "int64Param", value } }) as const;
  const text = (value: string) => ({ parameterChoice: { case: "stringParam", value } }) as const;
  const run = (parameters: Record<string, unknown>) =>
    decode({ outputs: [{ name: "O", parameters }] } as RequestInit).outputs[0]!;
  assert.deepEqual(run({}), { name: "O", classificationCount: 0 });
  assert.deepEqual(run({ binary_data: text("x"), classification: int64(3n) }), {
    name: "O",
    classificationCount: 3,
  });
  const region = { shared_memory_region: text("r"), shared_memory_byte_size: int64(8n) };
  assert.deepEqual(run({ ...region, shared_memory_offset: int64(4n) }).sharedMemory, {
    region: "r",
    offset: 4,
    byteSize: 8,
  });
  assert.equal(
    refusal(() => run({ classification: text("2") }))[1],
    "invalid value type for 'classification' parameter, expected int64_param",
  );
  assert.equal(
    refusal(() => run({ classification: int64(0n) }))[1],
    "invalid value for 'classification' parameter, expected >= 0",
  );
  assert.equal(
    refusal(() => run({ ...region, classification: int64(1n) }))[1],
    "output can't set both 'shared_memory_region' and 'classification'",
  );
});

const RESPONSE: InferResponse = {
  modelName: "modèle",
  modelVersion: "12",
  id: "r".repeat(300),
  parameters: { flag: true, count: -7n, ratio: 0.5, text: "ü", big: 2n ** 40n },
  outputs: [
    { name: "A", datatype: "FP32", shape: [1, 300, 70000], data: new Uint8Array(5000).fill(1) },
    { name: "B", datatype: "BYTES", shape: [0], data: new Uint8Array(0) },
    { name: "C", datatype: "INT64", shape: [], data: new Uint8Array(8).fill(2) },
  ],
};

function joined(parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(parts.flatMap((part) => [...part])).subarray(PREFIX_BYTES);
}

Deno.test("encodeInferResponse() writes what the generated code reads, with tensors by reference", () => {
  const { parts, byteSize } = encodeInferResponse(RESPONSE, { stream: false });
  const message = joined(parts);
  assert.equal(message.length, byteSize);
  const response = fromBinary(ModelInferResponseSchema, message);
  assert.equal(response.modelName, "modèle");
  assert.equal(response.id, RESPONSE.id);
  assert.deepEqual(
    Object.entries(response.parameters).map(([key, { parameterChoice }]) => [
      key,
      parameterChoice.case,
      parameterChoice.value,
    ]),
    [
      ["flag", "boolParam", true],
      ["count", "int64Param", -7n],
      ["ratio", "doubleParam", 0.5],
      ["text", "stringParam", "ü"],
      ["big", "int64Param", 2n ** 40n],
    ],
  );
  assert.deepEqual(response.outputs.map(({ name, datatype, shape }) => [name, datatype, shape]), [
    ["A", "FP32", [1n, 300n, 70000n]],
    ["B", "BYTES", [0n]],
    ["C", "INT64", []],
  ]);
  assert.deepEqual(response.rawOutputContents, RESPONSE.outputs.map(({ data }) => data));
  assert.equal(parts[1], RESPONSE.outputs[0]!.data);
  assert.equal(parts[3], RESPONSE.outputs[2]!.data);
});

Deno.test("encodeInferResponse() wraps responses of a stream and says which is final", () => {
  for (const final of [true, false]) {
    for (const size of [0, 10, 100, 200, 20000, 3000000]) {
      const outputs = [{ ...RESPONSE.outputs[0]!, data: new Uint8Array(size) }];
      const encoded = encodeInferResponse({ ...RESPONSE, outputs }, { stream: true, final });
      assert.equal(
        encoded.parts.reduce((sum, part) => sum + part.length, 0),
        encoded.byteSize + PREFIX_BYTES,
      );
      if (size > 20000) continue;
      const message = fromBinary(ModelStreamInferResponseSchema, joined(encoded.parts));
      assert.equal(message.errorMessage, "");
      const { parameters, rawOutputContents } = message.inferResponse!;
      assert.equal(parameters.triton_final_response!.parameterChoice.value, final);
      assert.equal(rawOutputContents[0]!.length, size);
    }
  }
});

Deno.test("encodeInferResponse() refuses what is larger than gRPC allows", () => {
  const data = { length: 2147483647 } as Uint8Array;
  const outputs = [{ name: "A", datatype: "INT8" as const, shape: [2147483647], data }];
  assert.match(
    refusal(() => encodeInferResponse({ ...RESPONSE, outputs }, { stream: false }))[1],
    /^Response has byte size \d+ which exceeds gRPC's byte size limit 2147483647\.$/,
  );
});

Deno.test("encodeStreamFailure() names the model only for failures during inference", () => {
  const early = encodeStreamFailure({ message: "no", id: "a" });
  const first = fromBinary(ModelStreamInferResponseSchema, joined(early.parts));
  assert.equal(first.errorMessage, "no");
  assert.deepEqual({ ...first.inferResponse!.parameters }, {});
  assert.equal(first.inferResponse!.id, "a");
  const late = encodeStreamFailure({
    message: "no",
    id: "a",
    model: { name: "m", version: "1", final: true },
  });
  const second = fromBinary(ModelStreamInferResponseSchema, joined(late.parts)).inferResponse!;
  assert.equal(second.modelName, "m");
  assert.equal(second.parameters.triton_final_response!.parameterChoice.value, true);
});
