const METADATA_FIELD = 14;
const KEY_FIELD = 1;
const VALUE_FIELD = 2;
const VARINT = 0;
const FIXED64 = 1;
const LENGTH_DELIMITED = 2;

/** Magika's labels out of its settings, a line each. */
export function readMagikaLabels(settings: Uint8Array): Uint8Array {
  const { target_labels_space: labels } = JSON.parse(new TextDecoder().decode(settings)) as {
    readonly target_labels_space: readonly string[];
  };
  return toLines(labels);
}

/** The first name of each class of ImageNet: `synsets` has their order, `lemmas` the names. */
export function readImagenetLabels(synsets: Uint8Array, lemmas: Uint8Array): Uint8Array {
  const names = new Map(
    splitLines(lemmas).map((line) => {
      const [synset = "", name = ""] = line.split("\t");
      return [synset, name.split(",")[0]!];
    }),
  );
  return toLines(splitLines(synsets).map((synset) => names.get(synset) ?? synset));
}

/**
 * A value out of the metadata of an ONNX file (`ModelProto.metadata_props`).
 * @throws Error when the file has no such key.
 */
export function readOnnxMetadata(model: Uint8Array, key: string): Uint8Array {
  for (const entry of readFields(model, METADATA_FIELD)) {
    const [name] = readFields(entry, KEY_FIELD);
    if (new TextDecoder().decode(name) !== key) continue;
    return readFields(entry, VALUE_FIELD)[0] ?? new Uint8Array();
  }
  throw new Error(`The ONNX file has no metadata ${key}`);
}

/** All byte strings of one field of a protobuf message. */
function readFields(message: Uint8Array, field: number): Uint8Array[] {
  const found: Uint8Array[] = [];
  let offset = 0;
  const readVarint = (): number => {
    let [value, scale] = [0, 1];
    for (;;) {
      const byte = message[offset++];
      if (byte === undefined) throw new Error("The protobuf message ends within a number");
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  };
  while (offset < message.length) {
    const tag = readVarint();
    const kind = tag % 8;
    if (kind === VARINT) readVarint();
    else if (kind === LENGTH_DELIMITED) {
      const end = readVarint() + offset;
      if (Math.floor(tag / 8) === field) found.push(message.subarray(offset, end));
      offset = end;
    } else offset += kind === FIXED64 ? 8 : 4;
  }
  return found;
}

function splitLines(bytes: Uint8Array): string[] {
  return new TextDecoder().decode(bytes).split(/\r?\n/).filter((line) => line !== "");
}

function toLines(texts: readonly string[]): Uint8Array {
  return new TextEncoder().encode(texts.join("\n") + "\n");
}
