import assert from "node:assert/strict";
import { writeOnnx } from "./onnx_writer.ts";
import { PickleReader } from "./pickle.ts";
import { readTorchCheckpoint } from "./torch_checkpoint.ts";

const text = (value: string) => [...new TextEncoder().encode(value)];
const unicode = (value: string) => [0x58, value.length, 0, 0, 0, ...text(value)];
const PROTOCOL = [0x80, 2];
const STOP = 0x2e;
const MAGIC = [
  ...PROTOCOL,
  0x8a,
  10,
  0x6c,
  0xfc,
  0x9c,
  0x46,
  0xf9,
  0x20,
  0x6a,
  0xa8,
  0x50,
  0x19,
  STOP,
];
const NOTHING = [...PROTOCOL, 0x4e, STOP];

Deno.test("PickleReader reads values that stand one behind the other", () => {
  const list = [...PROTOCOL, 0x5d, 0x28, 0x4b, 7, 0x4d, 0, 1, 0x4a, 255, 255, 255, 255, 0x88, 0x89];
  const reader = new PickleReader(
    Uint8Array.from([...list, ...unicode("a"), 0x65, STOP, ...NOTHING, 99]),
  );
  assert.deepEqual(reader.read(), [7, 256, -1, true, false, "a"]);
  assert.equal(reader.read(), null);
  assert.equal(reader.offset, list.length + 8 + NOTHING.length);
});

Deno.test("PickleReader refuses instructions that it does not know", () => {
  const reader = new PickleReader(Uint8Array.of(...PROTOCOL, 0x69));
  assert.throws(() => reader.read(), /Pickle instruction 0x69 at byte 2 is not known/);
});

Deno.test("PickleReader names functions and calls none", () => {
  const bytes = [...PROTOCOL, 0x63, ...text("os\nsystem\n"), ...unicode("ls"), 0x85, 0x52, STOP];
  assert.deepEqual(new PickleReader(Uint8Array.from(bytes)).read(), {
    callee: "os.system",
    args: ["ls"],
  });
});

/** A checkpoint of one FP32 tensor [2, 2] that lies column by column, and a counter. */
function checkpoint(): Uint8Array {
  const storage = (type: string, key: string) => [
    0x28,
    ...unicode("storage"),
    0x63,
    ...text(`torch\n${type}\n`),
    ...unicode(key),
    ...unicode("cpu"),
    0x4b,
    4,
    0x4e,
    0x74,
    0x51,
  ];
  const rebuild = [0x63, ...text("torch._utils\n_rebuild_tensor_v2\n")];
  const pair = (first: number, second: number) => [0x4b, first, 0x4b, second, 0x86];
  const table = [
    ...[...PROTOCOL, 0x7d, 0x28],
    ...[...unicode("w"), ...rebuild, 0x28, ...storage("FloatStorage", "1"), 0x4b, 0],
    ...[...pair(2, 2), ...pair(1, 2), 0x89, 0x7d, 0x74, 0x52],
    ...[...unicode("n"), ...rebuild, 0x28, ...storage("LongStorage", "2"), 0x4b, 0],
    ...[0x29, 0x29, 0x89, 0x7d, 0x74, 0x52],
    ...[0x75, STOP],
  ];
  const keys = [...PROTOCOL, 0x5d, 0x28, ...unicode("1"), ...unicode("2"), 0x65, STOP];
  const count = (value: number) => [...new Uint8Array(BigInt64Array.of(BigInt(value)).buffer)];
  const floats = [...new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer)];
  const head = [...MAGIC, ...NOTHING, ...NOTHING, ...table, ...keys];
  return Uint8Array.from([...head, ...count(4), ...floats, ...count(1), ...count(9)]);
}

Deno.test("readTorchCheckpoint() reads FP32 tensors row by row, however they lie", () => {
  const tensors = readTorchCheckpoint(checkpoint());
  assert.deepEqual([...tensors.keys()], ["w"]);
  const { shape, bytes } = tensors.get("w")!;
  assert.deepEqual(shape, [2, 2]);
  assert.deepEqual([...new Float32Array(bytes.slice().buffer)], [1, 3, 2, 4]);
});

Deno.test("readTorchCheckpoint() refuses what is no checkpoint, and one that is cut", () => {
  assert.throws(() => readTorchCheckpoint(Uint8Array.from(NOTHING)), /no PyTorch checkpoint/);
  const cut = checkpoint().subarray(0, -1);
  assert.throws(() => readTorchCheckpoint(cut), /The checkpoint has \d+ bytes, its tensors end at/);
});

Deno.test("writeOnnx() writes protobuf fields by their numbers", () => {
  const bytes = writeOnnx({
    name: "g",
    input: { name: "x", shape: ["n", 300] },
    output: { name: "y", shape: [1] },
    nodes: [{ operator: "Op", inputs: ["x"], output: "y", attributes: { a: 1, f: { float: 1 } } }],
    constants: [],
  });
  assert.deepEqual([...bytes.subarray(0, 12)], [8, 8, 18, 6, ...text("nereid"), 58, bytes[11]!]);
  assert.deepEqual([...bytes.subarray(-4)], [66, 2, 16, 17]);
  const hex = bytes.toHex();
  assert.ok(hex.includes("2a080a01611801a00102"), "attribute a = INT 1");
  assert.ok(hex.includes("2a0b0a0166150000803fa00101"), "attribute f = FLOAT 1");
});
