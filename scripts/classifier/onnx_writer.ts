/** An FP32 or INT64 constant of a graph. */
export interface OnnxConstant {
  readonly name: string;
  readonly type: "FP32" | "INT64";
  readonly shape: readonly number[];
  /** Elements, row-major, little endian. */
  readonly bytes: Uint8Array;
}

/** An operator of a graph. */
export interface OnnxNode {
  readonly operator: string;
  readonly inputs: readonly string[];
  readonly output: string;
  /** Numbers are INT, arrays INTS, texts STRING; `{ float }` is FLOAT. */
  readonly attributes?: Readonly<Record<string, OnnxAttribute>>;
}

/** Value of an attribute of an operator. */
export type OnnxAttribute = number | readonly number[] | string | { readonly float: number };

/** An FP32 input or output of a graph; texts are dimensions of any size. */
export interface OnnxPort {
  readonly name: string;
  readonly shape: readonly (number | string)[];
}

/** A graph with one input and one output. */
export interface OnnxGraph {
  readonly name: string;
  readonly input: OnnxPort;
  readonly output: OnnxPort;
  readonly nodes: readonly OnnxNode[];
  readonly constants: readonly OnnxConstant[];
}

const IR_VERSION = 8;
const OPSET_VERSION = 17;
const TYPE_NUMBERS = { FP32: 1, INT64: 7 } as const;

/** Writes a graph as an ONNX file; field numbers are those of `onnx.proto`. */
export function writeOnnx(graph: OnnxGraph): Uint8Array {
  const body = concat([
    ...graph.nodes.map((node) => part(1, writeNode(node))),
    part(2, text(graph.name)),
    ...graph.constants.map((constant) => part(5, writeConstant(constant))),
    part(11, writePort(graph.input)),
    part(12, writePort(graph.output)),
  ]);
  return concat([
    number(1, IR_VERSION),
    part(2, text("nereid")),
    part(7, body),
    part(8, number(2, OPSET_VERSION)),
  ]);
}

function writeNode({ operator, inputs, output, attributes = {} }: OnnxNode): Uint8Array {
  return concat([
    ...inputs.map((name) => part(1, text(name))),
    part(2, text(output)),
    part(3, text(output)),
    part(4, text(operator)),
    ...Object.entries(attributes).map(([name, value]) => part(5, writeAttribute(name, value))),
  ]);
}

function writeAttribute(name: string, value: OnnxAttribute): Uint8Array {
  const head = part(1, text(name));
  if (typeof value === "number") return concat([head, number(3, value), number(20, 2)]);
  if (typeof value === "string") return concat([head, part(4, text(value)), number(20, 3)]);
  if ("float" in value) return concat([head, float(2, value.float), number(20, 1)]);
  return concat([head, ...value.map((each) => number(8, each)), number(20, 7)]);
}

function writeConstant({ name, type, shape, bytes }: OnnxConstant): Uint8Array {
  return concat([
    ...shape.map((size) => number(1, size)),
    number(2, TYPE_NUMBERS[type]),
    part(8, text(name)),
    part(9, bytes),
  ]);
}

function writePort({ name, shape }: OnnxPort): Uint8Array {
  const sizes = shape.map((size) =>
    part(1, typeof size === "number" ? number(1, size) : part(2, text(size)))
  );
  const tensor = concat([number(1, TYPE_NUMBERS.FP32), part(2, concat(sizes))]);
  return concat([part(1, text(name)), part(2, part(1, tensor))]);
}

function text(value: string): Uint8Array {
  return new TextEncoder().encode(value);
}

function part(field: number, bytes: Uint8Array): Uint8Array {
  return concat([varint(field * 8 + 2), varint(bytes.length), bytes]);
}

function number(field: number, value: number): Uint8Array {
  return concat([varint(field * 8), varint(value)]);
}

function float(field: number, value: number): Uint8Array {
  return concat([varint(field * 8 + 5), new Uint8Array(Float32Array.of(value).buffer)]);
}

/** Whole numbers from 0 on. */
function varint(value: number): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 128) {
    bytes.push(rest % 128 + 128);
    rest = Math.floor(rest / 128);
  }
  return Uint8Array.from([...bytes, rest]);
}

function concat(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  let offset = 0;
  for (const each of parts) {
    whole.set(each, offset);
    offset += each.length;
  }
  return whole;
}
