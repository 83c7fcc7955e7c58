import assert from "node:assert/strict";
import { encodeBytesTensor } from "./bytes_tensor.ts";
import {
  decodeGenerateRequest,
  encodeGenerateResponse,
  type GenerateTarget,
} from "./http_codec_generate.ts";
import { JsonWriter } from "./json_writer.ts";

const TARGET: GenerateTarget = {
  modelName: "m",
  modelVersion: "",
  maxInputBytes: 1000,
  inputs: [
    { name: "TEXT", datatype: "BYTES", shape: [-1, 1] },
    { name: "N", datatype: "INT32", shape: [-1, 4] },
    { name: "FREE", datatype: "FP32", shape: [-1, -1] },
  ],
};

function decode(text: string, target = TARGET) {
  return decodeGenerateRequest(new TextEncoder().encode(text), target);
}

Deno.test("decodeGenerateRequest() makes tensors of members that are inputs, parameters of the others", () => {
  const request = decode(
    `{"id":"g","TEXT":"hi","stop":"END","parameters":{"N":[1,2,3,4,5,6,7,8],"t":0.5,"k":5,"on":true}}`,
  );
  assert.equal(request.id, "g");
  assert.deepEqual(request.parameters, { id: "g", stop: "END", t: 0.5, k: 5n, on: true });
  assert.deepEqual(request.inputs.map(({ name, shape }) => [name, shape]), [
    ["TEXT", [1, 1]],
    ["N", [2, 4]],
  ]);
  assert.deepEqual(request.inputs[0]!.data, encodeBytesTensor(["hi"]));
});

Deno.test("decodeGenerateRequest() deduces shapes from the number of elements", () => {
  assert.deepEqual(decode('{"FREE":[1,2,3]}').inputs[0]!.shape, [1, 3]);
  assert.deepEqual(decode('{"FREE":7}').inputs[0]!.shape, [1, 1]);
  assert.deepEqual(decode('{"FREE":[]}').inputs[0]!.shape, []);
  assert.throws(() => decode('{"N":[1,2,3]}'), {
    message: "The schema can not convert input 'N' to tensor with proper shape",
  });
});

Deno.test("decodeGenerateRequest() refuses what it cannot map", () => {
  const cases: [string, RegExp][] = [
    ["[]", /attempt to get members for non-object/],
    ['{"stop":["a"]}', /parameter 'stop' has invalid type/],
    ['{"N":[[1,2],[3,4]]}', /Unable to parse 'N'/],
    ['{"N":["5",1,2,3]}', /non-signed-integer as signed-integer/],
    [
      '{"parameters":5}',
      /^Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object$/,
    ],
    [
      '{"parameters":{"a":[1]}}',
      /^Converting keyword: 'parameters': parameter 'a' has invalid type/,
    ],
    ['{"N":["a"]}', /can not convert input 'N' to tensor with proper shape/],
    [
      '{"id":"q","TEXT":"a","TEXT":"b"}',
      /^\[request id: q\] input 'TEXT' already exists in request$/,
    ],
    ['{"TEXT":"a","parameters":{"TEXT":"b"}}', /input 'TEXT' already exists/],
    ['{"triton_x":1}', /reserved for Triton usage/],
  ];
  for (const [text, message] of cases) {
    assert.throws(() => decode(text), { code: "INVALID_ARG", message }, text);
  }
  const inputs = [{ name: "parameters", datatype: "FP32", shape: [1] } as const];
  assert.throws(() => decode('{"parameters":{}}', { ...TARGET, inputs }), {
    message: "Keyword 'parameters' for nested schema also given as input tensor name",
  });
  assert.throws(() => decode(`{"TEXT":"${"a".repeat(1000)}"}`), /exceeds the maximum allowed/);
});

Deno.test("encodeGenerateResponse() sorts members and writes single elements without brackets", () => {
  const json = encodeGenerateResponse({
    modelName: "m",
    modelVersion: "1",
    id: "x",
    parameters: { z: 1n },
    outputs: [
      { name: "b", datatype: "UINT8", shape: [1, 2], data: Uint8Array.of(1, 2) },
      { name: "a", datatype: "BYTES", shape: [1], data: encodeBytesTensor(["t"]) },
    ],
  }, new JsonWriter());
  assert.equal(
    new TextDecoder().decode(json),
    '{"a":"t","b":[1,2],"id":"x","model_name":"m","model_version":"1","z":1}',
  );
});
