import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import {
  BatchInput_Kind,
  DataType,
  ModelConfigSchema,
  ModelSequenceBatching_Control_Kind as ControlKind,
} from "../../proto/gen/model_config_pb.ts";
import { checkTensors, configuredInputs, configuredOutputs } from "./configured_io.ts";

const dataType = DataType.TYPE_FP32;
const row = (name: string, type = dataType, dims = [4n]) => ({ name, dataType: type, dims });
const SEQUENCE = create(ModelConfigSchema, {
  name: "m",
  maxBatchSize: 4,
  input: [{ ...row("x"), optional: true, reshape: { shape: [2n, 2n] } }],
  output: [row("out")],
  batchInput: [{
    kind: BatchInput_Kind.BATCH_ELEMENT_COUNT,
    targetName: ["count"],
    dataType,
    sourceInput: ["x"],
  }],
  schedulingChoice: {
    case: "sequenceBatching",
    value: {
      controlInput: [
        {
          name: "start",
          control: [{ kind: ControlKind.CONTROL_SEQUENCE_START, int32FalseTrue: [0, 1] }],
        },
        {
          name: "end",
          control: [{ kind: ControlKind.CONTROL_SEQUENCE_END, boolFalseTrue: [false, true] }],
        },
      ],
      state: [{ inputName: "s", outputName: "sN", dataType, dims: [3n] }],
    },
  },
});

Deno.test("configuredInputs() and configuredOutputs() find every tensor of a configuration", () => {
  const rows = configuredInputs(SEQUENCE).map((each) => [
    ...[each.source, each.name, DataType[each.dataType], each.dims?.map(Number)],
    each.isOptional,
  ]);
  assert.deepEqual(rows, [
    ["input", "x", "TYPE_FP32", [2, 2], true],
    ["control", "start", "TYPE_INT32", [1], false],
    ["control", "end", "TYPE_BOOL", [1], false],
    ["state", "s", "TYPE_FP32", [3], false],
    ["batch", "count", "TYPE_FP32", undefined, false],
  ]);
  assert.deepEqual(configuredOutputs(SEQUENCE).map(({ name, source }) => [name, source]), [
    ["out", "output"],
    ["sN", "state"],
  ]);
});

Deno.test("checkTensors() tells what no model of PyTorch has", () => {
  const check = (input: ReturnType<typeof row>[], output: ReturnType<typeof row>[], batch = 0) =>
    checkTensors(
      create(ModelConfigSchema, { name: "m", maxBatchSize: batch, input, output }),
      "package",
    );
  const { TYPE_STRING, TYPE_UINT64 } = DataType;
  check([row("x", TYPE_STRING, [-1n])], [row("y")]);
  check([row("x", TYPE_STRING, [1n])], [row("y")], 8);
  assert.throws(() => check([], [row("y")]), /at least one input, none were specified.*a package/s);
  assert.throws(() => check([row("x")], []), /at least one output, none were specified/);
  assert.throws(
    () => check([row("x")], [row("y", TYPE_UINT64)]),
    /unsupported datatype TYPE_UINT64 for output 'y' for model 'm'/,
  );
  for (const [dims, batch] of [[[2n, 2n], 0], [[4n], 8]] as const) {
    assert.throws(
      () => check([row("x", TYPE_STRING, [...dims])], [row("y")], batch),
      /Triton only supports 1 dimensional List of String as input for 'x'/,
    );
  }
});
