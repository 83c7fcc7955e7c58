import assert from "node:assert/strict";
import { decodeInferRequest, type InferTarget } from "./http_codec.ts";
import { forwardHeaders } from "./http_codec_parameters.ts";
import { decodeRawInferRequest } from "./http_codec_raw.ts";
import { encodeInferResponse } from "./http_codec_response.ts";
import type { InferOutput } from "./infer.ts";
import { JsonWriter } from "./json_writer.ts";

const TARGET: InferTarget = { modelName: "m", modelVersion: "", maxInputBytes: 1 << 20 };
const ONE = '{"name":"I","datatype":"UINT8","shape":[1],"data":[1]}';

function bytes(...parts: (string | number[])[]): Uint8Array {
  const encoder = new TextEncoder();
  return Uint8Array.from(
    parts.flatMap((part) => typeof part === "string" ? [...encoder.encode(part)] : part),
  );
}

function decode(json: string, tail: number[] = []) {
  const body = bytes(json, tail);
  return decodeInferRequest(body, { ...TARGET, headerLength: body.length - tail.length });
}

Deno.test("decodeInferRequest() passes over a byte order mark and null parameters of tensors", () => {
  const { request } = decode(
    `\ufeff{"inputs":[{"name":"I","datatype":"UINT8","shape":[1],"parameters":null,"data":[1]}],` +
      `"outputs":[{"name":"O","parameters":null}]}`,
  );
  assert.deepEqual(request.inputs, [
    { name: "I", datatype: "UINT8", shape: [1], data: Uint8Array.of(1) },
  ]);
  assert.deepEqual(request.outputs, [{ name: "O", classificationCount: 0 }]);
});

Deno.test("decodeInferRequest() reads a request with every member", () => {
  const { request, forms } = decode(
    `{"unknown":[{}],"id":"r1","parameters":{"sequence_id":"s","sequence_start":true,` +
      `"sequence_end":false,"priority":2,"timeout":7,"binary_data_output":true,"a":1,"b":1.0,` +
      `"c":"x","d":true,"e":18446744073709551615,"__proto__":"p"},` +
      `"inputs":[{"name":"A","datatype":"INT8","shape":[2],"parameters":{"binary_data_size":2}},` +
      `{"data":[1,2],"shape":[1,2],"datatype":"INT16","name":"B"},` +
      `{"name":"C","datatype":"FP32","shape":[16],"parameters":{"shared_memory_region":"R",` +
      `"shared_memory_offset":4,"shared_memory_byte_size":64}}],` +
      `"outputs":[{"name":"X","parameters":{"binary_data":true}},` +
      `{"name":"Y","parameters":{"classification":3}},` +
      `{"name":"Z","parameters":{"shared_memory_region":"R2","shared_memory_byte_size":8}}]}`,
    [5, 6],
  );
  assert.deepEqual(request, {
    modelName: "m",
    modelVersion: "",
    id: "r1",
    correlationId: "s",
    sequenceStart: true,
    sequenceEnd: false,
    priority: 2,
    timeoutUs: 7,
    parameters: JSON.parse(
      '{"a":0,"b":1,"c":"x","d":true,"e":18446744073709551615,"__proto__":"p"}',
      (key, value) => key === "a" ? 1n : value,
    ),
    inputs: [
      { name: "A", datatype: "INT8", shape: [2], data: Uint8Array.of(5, 6) },
      { name: "B", datatype: "INT16", shape: [1, 2], data: Uint8Array.of(1, 0, 2, 0) },
      {
        name: "C",
        datatype: "FP32",
        shape: [16],
        data: new Uint8Array(0),
        sharedMemory: { region: "R", offset: 4, byteSize: 64 },
      },
    ],
    outputs: [
      { name: "X", classificationCount: 0 },
      { name: "Y", classificationCount: 3 },
      {
        name: "Z",
        classificationCount: 0,
        sharedMemory: { region: "R2", offset: 0, byteSize: 8 },
      },
    ],
  });
  assert.deepEqual(forms, { isBinaryDefault: true, isBinary: [true, false, false] });
  structuredClone(request);
});

Deno.test("decodeInferRequest() makes views of binary inputs", () => {
  const json =
    `{"inputs":[{"name":"A","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}]}`;
  const body = bytes(json, [7, 8, 9]);
  const { request } = decodeInferRequest(body, { ...TARGET, headerLength: json.length });
  assert.equal(request.inputs[0]!.data.buffer, body.buffer);
  assert.deepEqual(request.inputs[0]!.data, Uint8Array.of(7, 8, 9));
});

Deno.test("decodeInferRequest() takes [] for a scalar and ignores the data of zero elements", () => {
  const scalar = decode(`{"inputs":[{"name":"I","datatype":"UINT8","shape":[],"data":[9]}]}`);
  assert.deepEqual(scalar.request.inputs[0]!.data, Uint8Array.of(9));
  const none = decode(`{"inputs":[{"name":"I","datatype":"FP32","shape":[0,4],"data":[1,"x"]}]}`);
  assert.equal(none.request.inputs[0]!.data.length, 0);
});

Deno.test("decodeInferRequest() takes the first of members with the same name", () => {
  const { request } = decode(
    `{"id":"a","id":5,"inputs":[{"name":"I","name":"J","datatype":"UINT8","shape":[1],"shape":"x",` +
      `"data":[1],"data":2}],"inputs":7}`,
  );
  assert.equal(request.id, "a");
  assert.equal(request.inputs[0]!.name, "I");
});

const input = (members: string) => `{"inputs":[{"name":"I","datatype":"UINT8",${members}}]}`;

Deno.test("decodeInferRequest() refuses what is wrong with the right text", () => {
  const cases: [string, string][] = [
    ["{}", "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"],
    ["[]", "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"],
    ['{"inputs":5}', "Unable to parse 'inputs': attempt to access JSON non-array as array"],
    ['{"id":7}', "Unable to parse 'id': attempt to access JSON non-string as string"],
    [
      '{"parameters":[1]}',
      "Unable to parse 'parameters': attempt to access JSON non-object as object",
    ],
    [
      '{"parameters":{"sequence_id":-3}}',
      "Unable to parse 'sequence_id': attempt to access JSON non-unsigned-integer as unsigned-integer",
    ],
    [
      '{"parameters":{"timeout":0.5}}',
      "Unable to parse 'timeout': attempt to access JSON non-unsigned-integer as unsigned-integer",
    ],
    [
      '{"parameters":{"sequence_start":1}}',
      "Unable to parse 'sequence_start': attempt to access JSON non-boolean as boolean",
    ],
    [
      '{"parameters":{"triton_x":1}}',
      "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
    ],
    [
      '{"parameters":{"k":null}}',
      "parameter 'k' has invalid type. It should be either 'int', 'bool', or 'string'.",
    ],
    [
      '{"inputs":[{"datatype":"UINT8","shape":[1],"data":[1]}]}',
      "Unable to parse 'name': attempt to access non-existing object member 'name'",
    ],
    [
      input('"shape":[1]'),
      "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', " +
      "'shared_memory_region' in 'parameters'. But no field is set",
    ],
    [
      input('"shape":[1],"data":[1],"parameters":{"binary_data_size":1}'),
      "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', " +
      "'shared_memory_region' in 'parameters'. But set 'data' 'binary_data_size'",
    ],
    [
      input('"shape":[1],"parameters":{"shared_memory_region":"R"}'),
      "Unable to parse 'shared_memory_byte_size': attempt to access non-existing object member 'shared_memory_byte_size'",
    ],
    [
      '{"inputs":[{"name":"I","datatype":"F","shape":[1],"data":[1]}]}',
      "invalid datatype for input I",
    ],
    [`{"id":"x","inputs":[${ONE},${ONE}]}`, "[request id: x] input 'I' already exists in request"],
    [
      `{"inputs":[${ONE}],"outputs":[{"name":"O"},{"name":"O"}]}`,
      "[request id: <id_unknown>] output 'O' already exists in request",
    ],
    [
      `{"inputs":[],"outputs":[{"name":"O","parameters":{"shared_memory_region":"R",` +
      `"shared_memory_byte_size":1,"classification":1}}]}`,
      "Output can't set both 'shared_memory_region' and 'classification'",
    ],
    [
      `{"inputs":[],"outputs":[{"name":"O","parameters":{"shared_memory_region":"R",` +
      `"shared_memory_byte_size":1,"binary_data":true}}]}`,
      "Output can't set both 'shared_memory_region' and 'binary_data'",
    ],
    [
      input('"shape":[4],"parameters":{"binary_data_size":4}'),
      "unexpected size for input 'I', expecting 4 additional bytes for model 'm'",
    ],
  ];
  for (const [json, message] of cases) {
    assert.throws(() => decode(json), { code: "INVALID_ARG", message }, json);
  }
  assert.throws(() => decode(`{"inputs":[${ONE}]}`, [1]), {
    message: "unexpected additional input data for model 'm'",
  });
});

Deno.test("decodeInferRequest() refuses impossible shapes", () => {
  const unsigned =
    "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer";
  const overflow = (shape: string) =>
    `invalid shape for input 'I': shape [${shape}] causes total element count to exceed maximum ` +
    `size of 9223372036854775807`;
  const cases: [string, string][] = [
    ["-1,16", unsigned],
    ["-0", unsigned],
    ["1.5", unsigned],
    ['"1"', unsigned],
    ["9007199254740992", overflow("9007199254740992")],
    ["9223372036854775807,1", overflow("9223372036854775807,1")],
    ["4294967296,4294967296", overflow("4294967296,4294967296")],
    [
      "18446744073709551615",
      "invalid shape for input 'I': shape [18446744073709551615] contains one or more invalid dimensions",
    ],
  ];
  for (const [shape, message] of cases) {
    assert.throws(() => decode(input(`"shape":[${shape}],"data":[1]`)), { message }, shape);
  }
});

Deno.test("decodeInferRequest() bounds JSON and tensors in it", () => {
  const target = { ...TARGET, maxInputBytes: 100 };
  assert.throws(() => decodeInferRequest(bytes(`{"inputs":[]}${" ".repeat(88)}`), target), {
    message:
      "request JSON size of 101 bytes exceeds the maximum allowed input size of 100 bytes. " +
      "Use --http-max-input-size to increase the limit.",
  });
  const json = `{"inputs":[{"name":"I","datatype":"FP64","shape":[13],"data":[1]}]}`;
  assert.throws(() => decodeInferRequest(bytes(json), target), {
    message:
      "JSON input 'I' has a byte_size (104 bytes) that exceeds the maximum allowed value of " +
      "100 bytes. Use --http-max-input-size to increase the limit.",
  });
  const many = `{"inputs":[${new Array(4097).fill(ONE).join(",")}]}`;
  assert.throws(() => decode(many), { message: "request has more than 4096 inputs" });
});

Deno.test("forwardHeaders() forwards what matches and refuses reserved names", () => {
  const parameters = {};
  forwardHeaders([["X-Fwd-A", "1"], ["host", "h"]], /^x-fwd-.*/i, parameters);
  assert.deepEqual(parameters, { "X-Fwd-A": "1" });
  for (const name of ["sequence_id", "Timeout", "triton_x"]) {
    assert.throws(() => forwardHeaders([[name, "5"]], /./, {}), {
      code: "INVALID_ARG",
      message: `Header '${name}' is reserved for Triton usage and cannot be forwarded.`,
    });
  }
});

Deno.test("decodeRawInferRequest() deduces the shape of the only input", () => {
  const raw = (datatype: "FP32" | "BYTES", shape: number[], maxBatchSize: number, size: number) =>
    decodeRawInferRequest(
      new Uint8Array(size),
      { inputs: [{ name: "I", datatype, shape }], maxBatchSize },
      TARGET,
    ).request.inputs[0]!;
  assert.deepEqual(raw("FP32", [-1, -1], 8, 12).shape, [1, 3]);
  assert.deepEqual(raw("FP32", [2, 3], 0, 20).shape, [2, 3]);
  assert.deepEqual(raw("FP32", [2, -1], 0, 24).shape, [2, 3]);
  assert.deepEqual(raw("BYTES", [-1, 1], 8, 3).data, Uint8Array.of(3, 0, 0, 0, 0, 0, 0));
  assert.throws(() => raw("FP32", [-1, -1], 0, 8), {
    message: "The shape of the raw input 'I' can not be deduced because there are more than one " +
      "variable-sized dimension",
  });
  assert.throws(() => raw("BYTES", [-1], 0, 8), {
    message: "For BYTE datatype raw input 'I', the model must have input shape [1]",
  });
  assert.throws(() => raw("FP32", [-1], 0, (1 << 20) + 1), {
    message: /^Raw input has a byte_size/,
  });
  assert.throws(
    () => decodeRawInferRequest(bytes(), { inputs: [], maxBatchSize: 0 }, TARGET),
    { message: /but got 0 inputs in 'm' model configuration/ },
  );
});

Deno.test("encodeInferResponse() writes JSON first and binary outputs behind it by reference", () => {
  const outputs: InferOutput[] = [
    { name: "A", datatype: "INT16", shape: [2], data: Uint8Array.of(1, 0, 255, 255) },
    { name: "B", datatype: "UINT8", shape: [1, 2], data: Uint8Array.of(3, 4) },
    { name: "C", datatype: "FP32", shape: [0], data: new Uint8Array(0) },
    {
      name: "D",
      datatype: "FP32",
      shape: [1],
      data: new Uint8Array(0),
      sharedMemory: { region: "R", offset: 0, byteSize: 4 },
    },
  ];
  const response = {
    modelName: "m",
    modelVersion: "2",
    id: 'q"',
    parameters: { a: 1n, b: 1, c: "x", d: true },
    outputs,
  };
  const requested = ["B", "A", "C", "D"].map((name) => ({ name, classificationCount: 0 }));
  const { parts, headerLength } = encodeInferResponse(response, requested, {
    forms: { isBinaryDefault: false, isBinary: [true, false, true, false] },
    writer: new JsonWriter(),
  });
  const json = new TextDecoder().decode(parts[0]);
  assert.equal(
    json,
    '{"id":"q\\"","model_name":"m","model_version":"2","parameters":{"a":1,"b":1.0,"c":"x","d":true},' +
      '"outputs":[{"name":"A","datatype":"INT16","shape":[2],"data":[1,-1]},' +
      '{"name":"B","datatype":"UINT8","shape":[1,2],"parameters":{"binary_data_size":2}},' +
      '{"name":"C","datatype":"FP32","shape":[0],"parameters":{"binary_data_size":0}},' +
      '{"name":"D","datatype":"FP32","shape":[1]}]}',
  );
  assert.equal(headerLength, json.length);
  assert.equal(parts.length, 2);
  assert.equal(parts[1], outputs[1]!.data);
});
