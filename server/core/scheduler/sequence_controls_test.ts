import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import {
  DataType,
  ModelSequenceBatching_Control_Kind as Kind,
  ModelSequenceBatchingSchema,
} from "../../../proto/gen/model_config_pb.ts";
import { SequenceControls } from "./sequence_controls.ts";

const BATCHING = create(ModelSequenceBatchingSchema, {
  controlInput: [
    { name: "S", control: [{ kind: Kind.CONTROL_SEQUENCE_START, int32FalseTrue: [7, -9] }] },
    { name: "E", control: [{ kind: Kind.CONTROL_SEQUENCE_END, fp32FalseTrue: [-0.5, 2.5] }] },
    { name: "R", control: [{ kind: Kind.CONTROL_SEQUENCE_READY, boolFalseTrue: [false, true] }] },
  ],
});

function withId(dataType: DataType) {
  return create(ModelSequenceBatchingSchema, {
    controlInput: [{ name: "C", control: [{ kind: Kind.CONTROL_SEQUENCE_CORRID, dataType }] }],
  });
}

function values(tensors: Iterable<{ name: string; datatype: string; data: Uint8Array }>) {
  return Object.fromEntries([...tensors].map(({ name, datatype, data }) => {
    const view = new DataView(data.buffer, data.byteOffset);
    if (datatype === "INT32") return [name, view.getInt32(0, true)];
    if (datatype === "FP32") return [name, view.getFloat32(0, true)];
    return [name, view.getUint8(0)];
  }));
}

Deno.test("SequenceControls.flagTensors() tells first, middle, last and single request", () => {
  const controls = new SequenceControls({ name: "m", maxBatchSize: 2 }, BATCHING);
  const flags = (sequenceStart: boolean, sequenceEnd: boolean) =>
    values(controls.flagTensors({ sequenceStart, sequenceEnd }));
  assert.deepEqual(flags(true, false), { S: -9, E: -0.5, R: 1 });
  assert.deepEqual(flags(false, false), { S: 7, E: -0.5, R: 1 });
  assert.deepEqual(flags(false, true), { S: 7, E: 2.5, R: 1 });
  assert.deepEqual(flags(true, true), { S: -9, E: 2.5, R: 1 });
  assert.deepEqual(values(controls.nullTensors.values()), { S: 7, E: -0.5, R: 0 });
});

Deno.test("SequenceControls shares its tensors and shapes them by max_batch_size", () => {
  const batching = new SequenceControls({ name: "m", maxBatchSize: 1 }, BATCHING);
  const request = { sequenceStart: true, sequenceEnd: false };
  assert.equal(batching.flagTensors(request), batching.flagTensors(request));
  assert.deepEqual(batching.flagTensors(request).map(({ shape }) => shape), Array(3).fill([1, 1]));
  const plain = new SequenceControls({ name: "m", maxBatchSize: 0 }, BATCHING);
  assert.deepEqual(plain.flagTensors(request).map(({ shape }) => shape), Array(3).fill([1]));
});

Deno.test("SequenceControls.idTensor() cuts numbers to their type", () => {
  const id = 0xfedc_ba98_7654_3210n;
  const low = [0x10, 0x32, 0x54, 0x76];
  const high = [0x98, 0xba, 0xdc, 0xfe];
  const cases = [
    [DataType.TYPE_UINT64, "UINT64", [...low, ...high]],
    [DataType.TYPE_INT64, "INT64", [...low, ...high]],
    [DataType.TYPE_UINT32, "UINT32", low],
    [DataType.TYPE_INT32, "INT32", low],
  ] as const;
  for (const [type, datatype, bytes] of cases) {
    const controls = new SequenceControls({ name: "m", maxBatchSize: 4 }, withId(type));
    const tensor = controls.idTensor(id)!;
    assert.deepEqual([tensor.datatype, tensor.shape, [...tensor.data]], [datatype, [1, 1], bytes]);
    assert.deepEqual([...controls.nullTensors.get("C")!.data], bytes.map(() => 0));
  }
});

Deno.test("SequenceControls.idTensor() makes a text one element", () => {
  const batching = withId(DataType.TYPE_STRING);
  const controls = new SequenceControls({ name: "m", maxBatchSize: 0 }, batching);
  const { datatype, shape, data } = controls.idTensor("żó")!;
  assert.deepEqual([datatype, shape, [...data]], ["BYTES", [1], [4, 0, 0, 0, 197, 188, 195, 179]]);
  assert.deepEqual([...controls.nullTensors.get("C")!.data], [0, 0, 0, 0]);
});

Deno.test("SequenceControls.checkId() refuses ids of the wrong kind", () => {
  const numbers = new SequenceControls(
    { name: "m", maxBatchSize: 1 },
    withId(DataType.TYPE_UINT32),
  );
  assert.throws(() => numbers.checkId({ id: "r", correlationId: "abc" }), {
    code: "INVALID_ARG",
    message: "[request id: r] sequence batching control 'C' data-type is 'BYTES', but model 'm' " +
      "expects 'UINT32'",
  });
  const texts = new SequenceControls({ name: "m", maxBatchSize: 1 }, withId(DataType.TYPE_STRING));
  assert.throws(() => texts.checkId({ id: "", correlationId: 5n }), {
    message:
      "[request id: <id_unknown>] sequence batching control 'C' data-type is 'UINT64', but " +
      "model 'm' expects 'BYTES'",
  });
  numbers.checkId({ id: "", correlationId: 5n });
  texts.checkId({ id: "", correlationId: "5" });
  new SequenceControls({ name: "m", maxBatchSize: 1 }, BATCHING).checkId({
    id: "",
    correlationId: "5",
  });
});
