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

/** Larger files are not looked into: their runs are not short. */
const MAX_FILE_BYTE_SIZE = 16 * 1024 * 1024;
const MODEL_GRAPH_FIELD = 7;
const GRAPH_NODE_FIELD = 1;
const NODE_OP_TYPE_FIELD = 4;
const NODE_DOMAIN_FIELD = 7;

const textDecoder = new TextDecoder();

/** True when a model file holds only operators whose work follows from shapes; false when in doubt. */
export async function isSteadyModelFile(path: string): Promise<boolean> {
  try {
    if ((await Deno.stat(path)).size > MAX_FILE_BYTE_SIZE) return false;
    return isSteadyModel(await Deno.readFile(path));
  } catch {
    return false;
  }
}

/** As {@linkcode isSteadyModelFile} for the bytes of a model. */
export function isSteadyModel(model: Uint8Array): boolean {
  try {
    for (const graph of fields(model, MODEL_GRAPH_FIELD)) {
      for (const node of fields(graph, GRAPH_NODE_FIELD)) {
        const operator = fields(node, NODE_OP_TYPE_FIELD).map((text) => textDecoder.decode(text));
        const domain = fields(node, NODE_DOMAIN_FIELD).map((text) => textDecoder.decode(text));
        if (domain.some((name) => name !== "" && name !== "ai.onnx")) return false;
        if (!STEADY_OPERATORS.has(operator[0] ?? "")) return false;
      }
    }
    return true;
  } catch {
    return false;
  }
}

/** Contents of all length-delimited fields of that number. @throws RangeError for what is no protobuf message. */
function fields(message: Uint8Array, wanted: number): Uint8Array[] {
  const found: Uint8Array[] = [];
  let offset = 0;
  while (offset < message.length) {
    const key = varint();
    const wireType = key & 7;
    if (wireType === 0) varint();
    else if (wireType === 1) offset += 8;
    else if (wireType === 5) offset += 4;
    else if (wireType === 2) {
      const end = varint() + offset;
      if (end > message.length) throw new RangeError("Field ends behind its message");
      if (key >>> 3 === wanted) found.push(message.subarray(offset, end));
      offset = end;
    } else throw new RangeError(`Unknown wire type ${wireType}`);
  }
  return found;

  function varint(): number {
    let value = 0;
    for (let shift = 0; shift < 70; shift += 7) {
      const byte = message[offset++];
      if (byte === undefined) throw new RangeError("Message ends inside a number");
      // Only lengths and keys matter, and they stay far below 2^53.
      value += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return value;
    }
    throw new RangeError("Number is longer than 10 bytes");
  }
}
