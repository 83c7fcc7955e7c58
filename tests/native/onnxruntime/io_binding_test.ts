import { deepEqual, equal, rejects, throws } from "node:assert/strict";
import { addressOf, allocateAligned } from "../../../ffi/memory.ts";
import {
  createTensorAt,
  type DeviceTensor,
  OrtIoBinding,
  OrtMemory,
} from "../../../ffi/onnxruntime/io_binding.ts";
import {
  copyTensor,
  ELEMENT_TYPE,
  OrtEnvironment,
  OrtError,
  OrtRunOptions,
  OrtSession,
  readValueShape,
} from "../../../ffi/onnxruntime/mod.ts";
import { addModel } from "../../fixtures/onnx_builder.ts";

const COUNT = 4;

/** Bytes outside of any tensor of the server, as those of a region are, seen as floats. */
function floats(values: readonly number[]): Float32Array {
  const bytes = allocateAligned(4 * values.length);
  const view = new Float32Array(bytes.buffer, bytes.byteOffset, values.length);
  view.set(values);
  return view;
}

function bound(memory: OrtMemory, view: Float32Array, shape = [view.length]): DeviceTensor {
  const bytes = new Uint8Array(view.buffer as ArrayBuffer, view.byteOffset, view.byteLength);
  const { byteLength: byteSize } = bytes;
  return { memory, address: addressOf(bytes), byteSize, shape, elementType: ELEMENT_TYPE.FLOAT };
}

/** Binds a tensor; the binding keeps it. */
function bind(
  binding: OrtIoBinding,
  [kind, name]: readonly ["input" | "output", string],
  tensor: DeviceTensor,
): void {
  const value = createTensorAt(tensor);
  try {
    if (kind === "input") binding.bindInput(name, value);
    else binding.bindOutput(name, value);
  } finally {
    tensor.memory.environment.calls.ReleaseValue(value);
  }
}

async function openAdd() {
  const environment = OrtEnvironment.open();
  const session = await OrtSession.open(environment, addModel([COUNT]));
  const [left, right] = session.signature.inputs.map(({ name }) => name) as [string, string];
  const sum = session.signature.outputs[0]!.name;
  return { environment, session, left, right, sum };
}

Deno.test("OrtIoBinding runs on bytes where they lie, again and again", async () => {
  const { environment, session, left, right, sum } = await openAdd();
  using _ = session;
  using memory = OrtMemory.of(environment, "Cpu", 0);
  using binding = OrtIoBinding.create(session);
  using options = OrtRunOptions.create(environment);
  const [a, b, c] = [floats([1, 2, 3, 4]), floats([10, 20, 30, 40]), floats([0, 0, 0, 0])];
  bind(binding, ["input", left], bound(memory, a));
  bind(binding, ["input", right], bound(memory, b));
  bind(binding, ["output", sum], bound(memory, c));
  await binding.run(options);
  deepEqual([...c], [11, 22, 33, 44]);
  // Nothing was copied when it was bound: what is written later is what runs.
  a.set([5, 5, 5, 5]);
  await binding.run(options);
  deepEqual([...c], [15, 25, 35, 45]);
  const d = floats([0, 0, 0, 0]);
  binding.clear();
  bind(binding, ["input", left], bound(memory, a));
  bind(binding, ["input", right], bound(memory, a));
  bind(binding, ["output", sum], bound(memory, d));
  await binding.run(options);
  deepEqual([[...c], [...d]], [[15, 25, 35, 45], [10, 10, 10, 10]]);
});

Deno.test("OrtIoBinding refuses names and sizes that do not fit, and outputs of another shape", async () => {
  const { environment, session, left, right, sum } = await openAdd();
  using _ = session;
  using memory = OrtMemory.of(environment, "Cpu", 0);
  using binding = OrtIoBinding.create(session);
  using options = OrtRunOptions.create(environment);
  const [a, short] = [floats([1, 2, 3, 4]), floats([0, 0])];
  throws(() => bind(binding, ["input", "none"], bound(memory, a)), OrtError);
  throws(() => bind(binding, ["input", left], bound(memory, short, [COUNT])), OrtError);
  binding.clear();
  bind(binding, ["input", left], bound(memory, a));
  bind(binding, ["input", right], bound(memory, a));
  bind(binding, ["output", sum], bound(memory, short));
  await rejects(binding.run(options), OrtError);
  equal([...short].join(), "0,0");
});

Deno.test("OrtMemory knows the memory of CUDA without a GPU", () => {
  using memory = OrtMemory.of(OrtEnvironment.open(), "Cuda", 1);
  equal(memory.disposed, false);
});

Deno.test("OrtIoBinding lets the runtime make the outputs that have no place", async () => {
  const { environment, session, left, right, sum } = await openAdd();
  using _ = session;
  using memory = OrtMemory.of(environment, "Cpu", 0);
  using binding = OrtIoBinding.create(session);
  using options = OrtRunOptions.create(environment);
  const a = floats([1, 2, 3, 4]);
  bind(binding, ["input", left], bound(memory, a));
  bind(binding, ["input", right], bound(memory, a));
  binding.bindOutput(sum);
  await binding.run(options);
  const values = binding.takeOutputs();
  deepEqual(values.map((value) => readValueShape(environment, value).shape), [[COUNT]]);
  const bytes = copyTensor(environment, values[0]!, 4 * COUNT);
  deepEqual([...new Float32Array(bytes.buffer)], [2, 4, 6, 8]);
  for (const value of values) environment.calls.ReleaseValue(value);
});
