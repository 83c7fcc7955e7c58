import { PickleReader, type PickleValue } from "./pickle.ts";

/** A tensor of a checkpoint: FP32 elements, row-major, as they lie in the file (little endian). */
export interface CheckpointTensor {
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

const FLOAT_STORAGE = "torch.FloatStorage";
const FLOAT_BYTES = 4;
const ELEMENT_BYTES: ReadonlyMap<string, number> = new Map([
  [FLOAT_STORAGE, FLOAT_BYTES],
  ["torch.LongStorage", 8],
]);
/** In front of a storage stands how many elements it has. */
const COUNT_BYTES = 8;
/** What PyTorch writes in front of checkpoints of this format. */
const MAGIC = 0x1950a86a20f9469cfc6cn;

interface TensorPlace {
  readonly storageKey: string;
  readonly storageType: string;
  readonly start: number;
  readonly shape: readonly number[];
  /** Elements from one to the next along each dimension. */
  readonly strides: readonly number[];
}

/**
 * Reads the FP32 tensors of a PyTorch checkpoint of the format before zip files: pickles of a magic number, a version,
 * the machine, the tensors by name and the keys of their storages; then the storages. Nothing of it is run.
 * @throws Error when the bytes are something else.
 */
export function readTorchCheckpoint(bytes: Uint8Array): Map<string, CheckpointTensor> {
  const reader = new PickleReader(bytes);
  if (reader.read() !== MAGIC) throw new Error("These bytes are no PyTorch checkpoint");
  reader.read();
  reader.read();
  const table = reader.read();
  const keys = reader.read();
  if (!(table instanceof Map) || !Array.isArray(keys)) {
    throw new Error("The checkpoint has no table of tensors");
  }
  const places = new Map([...table].map(([name, value]) => [String(name), readPlace(value)]));
  const types = new Map([...places.values()].map((place) => [place.storageKey, place.storageType]));
  const storages = findStorages(bytes, reader.offset, keys.map(String), types);
  const tensors = new Map<string, CheckpointTensor>();
  for (const [name, place] of places) {
    if (place.storageType !== FLOAT_STORAGE) continue;
    const storage = storages.get(place.storageKey);
    if (storage === undefined) throw new Error(`The checkpoint has no values of ${name}`);
    tensors.set(name, { shape: place.shape, bytes: gather(storage, place) });
  }
  return tensors;
}

/** The elements of a tensor in row-major order, however they lie in the storage. */
function gather(storage: Uint8Array, { start, shape, strides }: TensorPlace): Uint8Array {
  const source = new Float32Array(storage.slice().buffer);
  const target = new Float32Array(shape.reduce((product, size) => product * size, 1));
  const index = shape.map(() => 0);
  let from = start;
  for (let to = 0; to < target.length; to++) {
    target[to] = source[from]!;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      index[axis]!++;
      from += strides[axis]!;
      if (index[axis]! < shape[axis]!) break;
      from -= index[axis]! * strides[axis]!;
      index[axis] = 0;
    }
  }
  return new Uint8Array(target.buffer);
}

/** A tensor is a call of `_rebuild_tensor_v2(storage, offset, shape, strides, …)`. */
function readPlace(value: PickleValue): TensorPlace {
  const args = isObject(value) && "args" in value ? value.args : [];
  const [storage, start, shape, strides] = args;
  const id = isObject(storage) && "persistentId" in storage ? storage.persistentId : undefined;
  if (!Array.isArray(id) || !Array.isArray(shape) || !Array.isArray(strides)) {
    throw new Error("The checkpoint has something that is no tensor");
  }
  const type = id[1];
  return {
    storageKey: String(id[2]),
    storageType: isObject(type) && "name" in type ? type.name : "",
    start: Number(start),
    shape: shape.map(Number),
    strides: strides.map(Number),
  };
}

function isObject(value: PickleValue): value is Extract<PickleValue, object> {
  return typeof value === "object" && value !== null;
}

function findStorages(
  bytes: Uint8Array,
  start: number,
  keys: readonly string[],
  types: ReadonlyMap<string, string>,
): Map<string, Uint8Array> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const storages = new Map<string, Uint8Array>();
  let offset = start;
  for (const key of keys) {
    const size = ELEMENT_BYTES.get(types.get(key) ?? "");
    if (size === undefined) throw new Error(`The checkpoint has a storage of ${types.get(key)}`);
    const first = offset + COUNT_BYTES;
    offset = first + Number(view.getBigInt64(offset, true)) * size;
    storages.set(key, bytes.subarray(first, offset));
  }
  if (offset !== bytes.byteLength) {
    throw new Error(`The checkpoint has ${bytes.byteLength} bytes, its tensors end at ${offset}`);
  }
  return storages;
}
