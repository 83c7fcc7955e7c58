import { type FileField, ProtobufFileReader } from "../protobuf_file.ts";

/**
 * Operators whose work follows from the shapes of their inputs (for some: when what is in them is fixed, see below). Left out are those that run graphs (Loop, Scan, If)
 * and those that make shapes from values (Range, Tile, Expand, Resize, ConstantOfShape, NonZero, …).
 */
const STEADY_OPERATORS: ReadonlySet<string> = new Set(
  ("Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast " +
    "Ceil Celu Clip Concat Constant Conv ConvTranspose Cos Cosh CumSum DequantizeLinear Div Dropout " +
    "Elu Equal Erf Exp Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm " +
    "GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual HardSigmoid HardSwish Hardmax Identity " +
    "InstanceNormalization LRN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax " +
    "MatMul MatMulInteger Max MaxPool Mean Min Mish Mod Mul Neg Not Or PRelu Pow QLinearConv " +
    "QLinearMatMul QuantizeLinear RNN Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin " +
    "ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round Selu Shape Sigmoid Sign Sin Sinh Size " +
    "Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Transpose " +
    "Unsqueeze Where Xor").split(" "),
);

/** Operators whose inputs behind the first one say which shape the result has. */
const SHAPED_BY_INPUTS = /^(?:Reshape|Squeeze|Unsqueeze|Split|Slice|Reduce.*)$/;
/** Operators whose results follow from the shape of their input alone. */
const READS_SHAPE: ReadonlySet<string> = new Set(["Shape", "Size"]);

const MODEL_GRAPH_FIELD = 7;
const GRAPH = { node: 1, initializer: 5, input: 11 } as const;
const NODE = { input: 1, output: 2, operator: 4, domain: 7 } as const;
const INPUT_NAME_FIELD = 1;
const INITIALIZER_NAME_FIELD = 8;
/** A model with more operators than this has no short runs; a node larger than this is not worth reading. */
const MAX_NODE_COUNT = 512;
const MAX_NODE_BYTE_SIZE = 64 * 1024;

/** True when a model file holds only operators whose work follows from shapes; false when in doubt. */
export async function isSteadyModelFile(path: string): Promise<boolean> {
  try {
    using file = await Deno.open(path);
    const reader = new ProtobufFileReader(file);
    const { size } = await file.stat();
    let hasGraph = false;
    for await (const field of reader.fields(0, size)) {
      if (field.number !== MODEL_GRAPH_FIELD) continue;
      if (hasGraph || !await isSteadyGraph(reader, field)) return false;
      hasGraph = true;
    }
    return hasGraph;
  } catch {
    return false;
  }
}

async function isSteadyGraph(reader: ProtobufFileReader, graph: FileField): Promise<boolean> {
  // What clients send, and all that is made of it, in the order of the nodes: each comes behind those it needs.
  const sent = await readInputNames(reader, graph);
  let nodeCount = 0;
  for await (const { number, start, end } of reader.fields(graph.start, graph.end)) {
    if (number !== GRAPH.node) continue;
    if (++nodeCount > MAX_NODE_COUNT || end - start > MAX_NODE_BYTE_SIZE) return false;
    const node = await readNode(reader, start, end);
    if (!STEADY_OPERATORS.has(node.operator) || !/^(?:ai\.onnx)?$/.test(node.domain)) return false;
    const isSent = (name: string) => sent.has(name);
    if (SHAPED_BY_INPUTS.test(node.operator) && node.inputs.slice(1).some(isSent)) return false;
    if (READS_SHAPE.has(node.operator) || !node.inputs.some(isSent)) continue;
    for (const name of node.outputs) sent.add(name);
  }
  return nodeCount > 0;
}

/** Names of the graph's inputs that have no value in the file. */
async function readInputNames(reader: ProtobufFileReader, graph: FileField): Promise<Set<string>> {
  const inputs = new Set<string>();
  const initializers: string[] = [];
  for await (const { number, start, end } of reader.fields(graph.start, graph.end)) {
    if (number === GRAPH.input) {
      inputs.add(await readText(reader, { start, end, number: INPUT_NAME_FIELD }));
    } else if (number === GRAPH.initializer) {
      initializers.push(await readText(reader, { start, end, number: INITIALIZER_NAME_FIELD }));
    }
  }
  for (const name of initializers) inputs.delete(name);
  return inputs;
}

/** The text field `number` of the message at `[start, end)`. */
async function readText(
  reader: ProtobufFileReader,
  { start, end, number }: FileField,
): Promise<string> {
  for await (const field of reader.fields(start, end)) {
    if (field.number === number) return await reader.text(field.start, field.end);
  }
  return "";
}

interface GraphNode {
  readonly operator: string;
  readonly domain: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

async function readNode(
  reader: ProtobufFileReader,
  nodeStart: number,
  nodeEnd: number,
): Promise<GraphNode> {
  const texts: Record<number, string[]> = {};
  const wanted: readonly number[] = Object.values(NODE);
  for await (const { number, start, end } of reader.fields(nodeStart, nodeEnd)) {
    if (wanted.includes(number)) (texts[number] ??= []).push(await reader.text(start, end));
  }
  return {
    operator: texts[NODE.operator]?.at(-1) ?? "",
    domain: texts[NODE.domain]?.at(-1) ?? "",
    inputs: texts[NODE.input] ?? [],
    outputs: texts[NODE.output] ?? [],
  };
}
