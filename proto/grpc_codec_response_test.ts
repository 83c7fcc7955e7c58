import { fromBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { ModelInferResponseSchema, ModelStreamInferResponseSchema } from "./gen/grpc_service_pb.ts";
import { encodeInferResponse, encodeStreamFailure, PREFIX_BYTES } from "./grpc_codec_response.ts";
import type { InferResponse } from "./infer.ts";
import { ServerError } from "./status.ts";

function refusal(run: () => unknown): [string, string] {
  try {
    run();
  } catch (error) {
    assert(error instanceof ServerError, String(error));
    return [error.code, error.message];
  }
  throw new assert.AssertionError({ message: "No error" });
}

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
  assert.equal(parts.length, 3);
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
