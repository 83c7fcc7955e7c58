import { ProtobufFileReader } from "./protobuf_file.ts";

/**
 * Operators whose work follows from the shapes of their inputs. Left out are those that run graphs (Loop, Scan, If)
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

const MODEL_GRAPH_FIELD = 7;
const GRAPH_NODE_FIELD = 1;
const NODE_OP_TYPE_FIELD = 4;
const NODE_DOMAIN_FIELD = 7;
/** A model with more operators than this has no short runs; a node larger than this is not worth reading. */
const MAX_NODE_COUNT = 512;
const MAX_NODE_BYTE_SIZE = 64 * 1024;

/** True when a model file holds only operators whose work follows from shapes; false when in doubt. */
export async function isSteadyModelFile(path: string): Promise<boolean> {
  try {
    using file = await Deno.open(path);
    const reader = new ProtobufFileReader(file);
    let nodeCount = 0;
    const { size } = await file.stat();
    for await (const field of reader.fields(0, size)) {
      if (field.number !== MODEL_GRAPH_FIELD) continue;
      for await (const { number, start, end } of reader.fields(field.start, field.end)) {
        if (number !== GRAPH_NODE_FIELD) continue;
        if (++nodeCount > MAX_NODE_COUNT || end - start > MAX_NODE_BYTE_SIZE) return false;
        if (!await isSteadyNode(reader, start, end)) return false;
      }
    }
    return nodeCount > 0;
  } catch {
    return false;
  }
}

async function isSteadyNode(
  reader: ProtobufFileReader,
  nodeStart: number,
  nodeEnd: number,
): Promise<boolean> {
  let operator = "";
  for await (const { number, start, end } of reader.fields(nodeStart, nodeEnd)) {
    if (number !== NODE_OP_TYPE_FIELD && number !== NODE_DOMAIN_FIELD) continue;
    const text = await reader.text(start, end);
    if (number === NODE_OP_TYPE_FIELD) operator = text;
    else if (text !== "" && text !== "ai.onnx") return false;
  }
  return STEADY_OPERATORS.has(operator);
}
