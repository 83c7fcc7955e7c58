import { ONNX_TYPE } from "../../ffi/onnxruntime/element_type.ts";
import { type FileField, ProtobufFileReader } from "../protobuf_file.ts";

const MODEL_GRAPH_FIELD = 7;
const GRAPH = { initializer: 5, input: 11, output: 12 } as const;
const VALUE = { name: 1, type: 2 } as const;
/** Fields of a `TypeProto` by what they are. */
const TYPE_FIELDS: ReadonlyMap<number, number> = new Map([
  [1, ONNX_TYPE.TENSOR],
  [4, ONNX_TYPE.SEQUENCE],
  [5, ONNX_TYPE.MAP],
  [7, ONNX_TYPE.OPAQUE],
  [8, ONNX_TYPE.SPARSETENSOR],
  [9, ONNX_TYPE.OPTIONAL],
]);
const TENSOR_SHAPE_FIELD = 2;
const EXTERNAL_DATA_FIELD = 13;
const ENTRY = { key: 1, value: 2 } as const;
const MAX_NAME_BYTE_SIZE = 4096;
const MAX_EXTERNAL_FILES = 1024;

/** What a model's file says of an input or output. */
export interface DeclaredTensor {
  /** `ONNX_TYPE` number. */
  readonly onnxType: number;
  /** False when the file leaves the rank open. */
  readonly hasShape: boolean;
}

/** Inputs and outputs by name, as far as the file can be read: none for one that is no ONNX file. */
export async function readModelTensors(path: string): Promise<Map<string, DeclaredTensor>> {
  const tensors = new Map<string, DeclaredTensor>();
  await readGraph(path, async (reader, field) => {
    if (field.number !== GRAPH.input && field.number !== GRAPH.output) return;
    let name = "";
    let declared: DeclaredTensor | undefined;
    for await (const { number, start, end } of reader.fields(field.start, field.end)) {
      if (number === VALUE.name) name = await readName(reader, start, end);
      else if (number === VALUE.type) declared = await readType(reader, start, end);
    }
    if (declared !== undefined) tensors.set(name, declared);
  });
  return tensors;
}

/** Names of the files that hold weights of the model, as it has them. */
export async function readExternalFiles(path: string): Promise<string[]> {
  const files = new Set<string>();
  await readGraph(path, async (reader, field) => {
    if (field.number !== GRAPH.initializer || files.size >= MAX_EXTERNAL_FILES) return;
    for await (const entry of reader.fields(field.start, field.end)) {
      if (entry.number !== EXTERNAL_DATA_FIELD) continue;
      let [key, value] = ["", ""];
      for await (const { number, start, end } of reader.fields(entry.start, entry.end)) {
        if (number === ENTRY.key) key = await readName(reader, start, end);
        else if (number === ENTRY.value) value = await readName(reader, start, end);
      }
      if (key === "location") files.add(value);
    }
  });
  return [...files];
}

/** Visits the fields of the graph. What cannot be read is the runtime's to refuse. */
async function readGraph(
  path: string,
  visit: (reader: ProtobufFileReader, field: FileField) => Promise<void>,
): Promise<void> {
  try {
    using file = await Deno.open(path);
    const reader = new ProtobufFileReader(file);
    const { size } = await file.stat();
    for await (const graph of reader.fields(0, size)) {
      if (graph.number !== MODEL_GRAPH_FIELD) continue;
      for await (const field of reader.fields(graph.start, graph.end)) await visit(reader, field);
    }
  } catch (error) {
    if (error instanceof RangeError || error instanceof Deno.errors.NotFound) return;
    throw error;
  }
}

async function readType(
  reader: ProtobufFileReader,
  typeStart: number,
  typeEnd: number,
): Promise<DeclaredTensor | undefined> {
  for await (const { number, start, end } of reader.fields(typeStart, typeEnd)) {
    const onnxType = TYPE_FIELDS.get(number);
    if (onnxType === undefined) continue;
    let hasShape = false;
    for await (const field of reader.fields(start, end)) {
      if (field.number === TENSOR_SHAPE_FIELD) hasShape = true;
    }
    return { onnxType, hasShape };
  }
  return undefined;
}

async function readName(reader: ProtobufFileReader, start: number, end: number): Promise<string> {
  if (end - start > MAX_NAME_BYTE_SIZE) throw new RangeError("Name is too long");
  return await reader.text(start, end);
}
