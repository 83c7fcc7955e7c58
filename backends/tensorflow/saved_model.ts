import { join } from "node:path";
import { BinaryReader } from "@bufbuild/protobuf/wire";
import { ServerError } from "../../proto/status.ts";
import { type FileField, ProtobufFileReader } from "../protobuf_file.ts";

/** Name of the file in the folder of a SavedModel. */
const GRAPH_FILE = "saved_model.pb";
/** Signatures are small: a larger one is no signature. */
const MAX_SIGNATURE_BYTE_SIZE = 16 * 1024 * 1024;

/** Fields of `SavedModel`, `MetaGraphDef`, `MetaInfoDef`, and of an entry of a map. */
const SAVED_MODEL = { metaGraphs: 2 } as const;
const META_GRAPH = { metaInfo: 1, saver: 3, signatures: 5 } as const;
const META_INFO = { tags: 4, version: 5 } as const;
const ENTRY = { key: 1, value: 2 } as const;

/** An input or output of a signature. */
export interface SignatureTensor {
  /** Its name in the signature. */
  readonly name: string;
  /** Its name in the graph, such as `StatefulPartitionedCall:0`; "" for what is no dense tensor. */
  readonly tensorName: string;
  /** `TF_DATA_TYPE` number. */
  readonly dataType: number;
  /** -1 for a free dimension; undefined when the rank is not known. */
  readonly dims: readonly number[] | undefined;
}

/** A function of the model as it is called from outside. */
export interface GraphSignature {
  readonly name: string;
  /** By name. */
  readonly inputs: readonly SignatureTensor[];
  readonly outputs: readonly SignatureTensor[];
}

/** One of the graphs of a SavedModel. */
export interface MetaGraph {
  readonly tags: readonly string[];
  /** Of the TensorFlow that wrote it; "" = not told. */
  readonly version: string;
  /** It restores variables from the folder `variables`. */
  readonly restores: boolean;
  /** By name. */
  readonly signatures: ReadonlyMap<string, GraphSignature>;
}

/**
 * Reads tags and signatures out of a folder with a SavedModel; graphs and constants are passed over.
 * @throws ServerError UNAVAILABLE when the file cannot be read, INVALID_ARG when it is none or cut off.
 */
export async function readSavedModel(folder: string, modelName: string): Promise<MetaGraph[]> {
  const path = join(folder, GRAPH_FILE);
  let size = 0;
  try {
    using file = await Deno.open(path);
    size = (await file.stat()).size;
    const graphs = await readMetaGraphs(file, size);
    if (graphs.length > 0) return graphs;
    throw new RangeError("It holds no graph");
  } catch (error) {
    if (error instanceof ServerError) throw error;
    if (error instanceof Deno.errors.NotFound) throw notBinary(folder, modelName);
    if (!(error instanceof RangeError) && !(error instanceof Error && isDecoding(error))) {
      throw new ServerError(
        "UNAVAILABLE",
        `unable to load '${path}': ${ServerError.from(error).message}`,
      );
    }
    throw new ServerError(
      "INVALID_ARG",
      `unable to load model '${modelName}': '${path}' of ${size} bytes is cut off, or no SavedModel ` +
        `of TensorFlow (${error.message}); copy or export it again`,
      { cause: error },
    );
  }
}

/** What the decoder of protobuf messages throws beside a RangeError. */
function isDecoding(error: Error): boolean {
  return error.constructor === Error || error instanceof SyntaxError;
}

function notBinary(folder: string, modelName: string): ServerError {
  return new ServerError(
    "UNSUPPORTED",
    `unable to load model '${modelName}': '${folder}' holds its graph as text (saved_model.pbtxt); ` +
      `only ${GRAPH_FILE} is served: load it with TensorFlow and export it by tf.saved_model.save`,
  );
}

async function readMetaGraphs(file: Deno.FsFile, size: number): Promise<MetaGraph[]> {
  const reader = new ProtobufFileReader(file);
  const graphs: MetaGraph[] = [];
  for await (const field of reader.fields(0, size)) {
    if (field.number === SAVED_MODEL.metaGraphs) {
      graphs.push(await readMetaGraph(reader, file, field));
    }
  }
  return graphs;
}

async function readMetaGraph(
  reader: ProtobufFileReader,
  file: Deno.FsFile,
  { start, end }: FileField,
): Promise<MetaGraph> {
  const signatures = new Map<string, GraphSignature>();
  const tags: string[] = [];
  let version = "";
  let restores = false;
  // The reader moves in the file: contents are read when it has passed over all of them.
  const contents: FileField[] = [];
  for await (const field of reader.fields(start, end)) {
    if (field.number === META_GRAPH.saver) restores = true;
    else if (field.number === META_GRAPH.signatures) contents.push(field);
    else if (field.number === META_GRAPH.metaInfo) {
      for await (const inner of reader.fields(field.start, field.end)) {
        const text = () => reader.text(inner.start, inner.end);
        if (inner.number === META_INFO.tags) tags.push(await text());
        else if (inner.number === META_INFO.version) version = await text();
      }
    }
  }
  for (const field of contents) {
    const signature = decodeSignatureEntry(await readBytes(file, field));
    signatures.set(signature.name, signature);
  }
  return { tags, version, restores, signatures };
}

async function readBytes(file: Deno.FsFile, { start, end }: FileField): Promise<Uint8Array> {
  if (end - start > MAX_SIGNATURE_BYTE_SIZE) {
    throw new RangeError(`A signature of ${end - start} bytes`);
  }
  const bytes = new Uint8Array(end - start);
  await file.seek(start, Deno.SeekMode.Start);
  for (let filled = 0; filled < bytes.length;) {
    const count = await file.read(bytes.subarray(filled));
    if (count === null) throw new RangeError("File ends inside a signature");
    filled += count;
  }
  return bytes;
}

/** Calls `visit` for each field of a message; what it does not read (false) is passed over. */
function walk(
  bytes: Uint8Array,
  visit: (field: number, reader: BinaryReader) => boolean,
): void {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (!visit(field, reader)) reader.skip(wireType, field);
  }
}

/** An entry of a map with messages as values. */
function decodeEntry(bytes: Uint8Array): { readonly key: string; readonly value: Uint8Array } {
  let key = "";
  let value: Uint8Array = new Uint8Array(0);
  walk(bytes, (field, reader) => {
    if (field === ENTRY.key) key = reader.string();
    else if (field === ENTRY.value) value = reader.bytes();
    else return false;
    return true;
  });
  return { key, value };
}

/** `SignatureDef`: map inputs = 1, outputs = 2. */
function decodeSignatureEntry(bytes: Uint8Array): GraphSignature {
  const { key, value } = decodeEntry(bytes);
  const inputs: SignatureTensor[] = [];
  const outputs: SignatureTensor[] = [];
  walk(value, (field, reader) => {
    if (field !== 1 && field !== 2) return false;
    (field === 1 ? inputs : outputs).push(decodeTensorEntry(reader.bytes()));
    return true;
  });
  // Maps come in any order.
  for (const list of [inputs, outputs]) list.sort((a, b) => a.name < b.name ? -1 : 1);
  return { name: key, inputs, outputs };
}

/** `TensorInfo`: name = 1, dtype = 2, tensor_shape = 3; sparse and composite tensors have others in place of a name. */
function decodeTensorEntry(bytes: Uint8Array): SignatureTensor {
  const { key, value } = decodeEntry(bytes);
  let tensorName = "";
  let dataType = 0;
  // Without a shape nothing is known of it.
  let dims: number[] | undefined;
  walk(value, (field, reader) => {
    if (field === 1) tensorName = reader.string();
    else if (field === 2) dataType = reader.int32();
    else if (field === 3) dims = decodeShape(reader.bytes());
    else return false;
    return true;
  });
  return { name: key, tensorName, dataType, dims };
}

/** `TensorShapeProto`: dim = 2, each with its size = 1; unknown_rank = 3. */
function decodeShape(bytes: Uint8Array): number[] | undefined {
  const dims: number[] = [];
  let isKnown = true;
  walk(bytes, (field, reader) => {
    if (field === 3) isKnown = !reader.bool();
    else if (field === 2) {
      let size = 0;
      walk(reader.bytes(), (inner, dim) => {
        if (inner !== 1) return false;
        size = Number(dim.int64());
        return true;
      });
      dims.push(size);
    } else return false;
    return true;
  });
  return isKnown ? dims : undefined;
}
