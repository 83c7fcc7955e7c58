import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { ModelInferRequestSchema } from "./gen/grpc_service_pb.ts";
import { decodeInferRequest, parseInferMessage } from "./grpc_codec.ts";
import { ServerError } from "./status.ts";

type RequestInit = MessageInitShape<typeof ModelInferRequestSchema>;

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
  const region = { "shared_memory_region": text("r"), "shared_memory_byte_size": int64(8n) };
  assert.deepEqual(run({ ...region, "shared_memory_offset": int64(4n) }).sharedMemory, {
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
