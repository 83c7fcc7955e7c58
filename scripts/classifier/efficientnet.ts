import { type OnnxAttribute, type OnnxConstant, type OnnxNode, writeOnnx } from "./onnx_writer.ts";
import { type CheckpointTensor, readTorchCheckpoint } from "./torch_checkpoint.ts";

const SIDE = 224;
const CLASSES = 1000;
const NORM_EPSILON = 1e-3;
/** Blocks that halve the sides of the picture; all others keep them. */
const HALVING_BLOCKS: readonly number[] = [1, 3, 5, 11];
const BLOCK_COUNT = 16;

/**
 * EfficientNet-Lite0 as an ONNX model out of its PyTorch weights, without PyTorch: `image` FP32[batch,3,224,224] →
 * `probabilities` FP32[batch,1000].
 * @throws Error when a weight is missing.
 */
export function buildEfficientNet(checkpoint: Uint8Array): Uint8Array {
  const graph = new GraphBuilder(readTorchCheckpoint(checkpoint));
  let top = graph.convolution("image", "_conv_stem", "_bn0", { stride: 2 });
  top = graph.clip(top);
  for (let index = 0; index < BLOCK_COUNT; index++) top = addBlock(graph, top, index);
  top = graph.clip(graph.convolution(top, "_conv_head", "_bn1"));
  top = graph.node("GlobalAveragePool", [top]);
  top = graph.node("Flatten", [top], { axis: 1 });
  top = graph.node("Gemm", [top, graph.weight("_fc.weight"), graph.weight("_fc.bias")], {
    transB: 1,
  });
  return writeOnnx({
    name: "efficientnet_lite0",
    input: { name: "image", shape: ["batch", 3, SIDE, SIDE] },
    output: { name: "probabilities", shape: ["batch", CLASSES] },
    nodes: [...graph.nodes, {
      operator: "Softmax",
      inputs: [top],
      output: "probabilities",
      attributes: { axis: 1 },
    }],
    constants: graph.constants,
  });
}

/** Widens (all but the first block), filters each channel, narrows; adds what came in where the shapes allow it. */
function addBlock(graph: GraphBuilder, input: string, index: number): string {
  const name = `_blocks.${index}`;
  const stride = HALVING_BLOCKS.includes(index) ? 2 : 1;
  const hasExpansion = graph.has(`${name}._expand_conv.weight`);
  const wide = hasExpansion
    ? graph.clip(graph.convolution(input, `${name}._expand_conv`, `${name}._bn0`))
    : input;
  const filtered = graph.clip(
    graph.convolution(wide, `${name}._depthwise_conv`, `${name}._bn1`, {
      stride,
      isDepthwise: true,
    }),
  );
  const output = graph.convolution(filtered, `${name}._project_conv`, `${name}._bn2`);
  const [outputs] = graph.shape(`${name}._project_conv.weight`);
  const inputs = hasExpansion ? graph.shape(`${name}._expand_conv.weight`)[1] : undefined;
  return stride === 1 && inputs === outputs ? graph.node("Add", [input, output]) : output;
}

interface ConvolutionOptions {
  readonly stride?: number;
  readonly isDepthwise?: boolean;
}

class GraphBuilder {
  readonly nodes: OnnxNode[] = [];
  readonly constants: OnnxConstant[] = [];
  readonly #weights: ReadonlyMap<string, CheckpointTensor>;

  constructor(weights: ReadonlyMap<string, CheckpointTensor>) {
    this.#weights = weights;
    this.#limit("zero", 0);
    this.#limit("six", 6);
  }

  has(name: string): boolean {
    return this.#weights.has(name);
  }

  shape(name: string): readonly number[] {
    return this.#find(name).shape;
  }

  /** Takes a weight over; returns its name. */
  weight(name: string): string {
    this.constants.push({ name, type: "FP32", ...this.#find(name) });
    return name;
  }

  node(
    operator: string,
    inputs: readonly string[],
    attributes: Readonly<Record<string, OnnxAttribute>> = {},
  ): string {
    const output = `${operator}_${this.nodes.length}`;
    this.nodes.push({ operator, inputs, output, attributes });
    return output;
  }

  /** A convolution without bias, and the normalization behind it. */
  convolution(
    input: string,
    name: string,
    normName: string,
    { stride = 1, isDepthwise = false }: ConvolutionOptions = {},
  ): string {
    const [outputs = 0, , high = 1, wide = 1] = this.shape(`${name}.weight`);
    const filtered = this.node("Conv", [input, this.weight(`${name}.weight`)], {
      kernel_shape: [high, wide],
      strides: [stride, stride],
      group: isDepthwise ? outputs : 1,
      // As TensorFlow, where the weights come from: an odd pixel of padding is right and below.
      auto_pad: "SAME_UPPER",
    });
    const norm = ["weight", "bias", "running_mean", "running_var"];
    return this.node(
      "BatchNormalization",
      [filtered, ...norm.map((each) => this.weight(`${normName}.${each}`))],
      { epsilon: { float: NORM_EPSILON } },
    );
  }

  /** Limits values to 0 … 6. */
  clip(input: string): string {
    return this.node("Clip", [input, "zero", "six"]);
  }

  #limit(name: string, value: number): void {
    const bytes = new Uint8Array(Float32Array.of(value).buffer);
    this.constants.push({ name, type: "FP32", shape: [], bytes });
  }

  #find(name: string): CheckpointTensor {
    const found = this.#weights.get(name);
    if (found === undefined) throw new Error(`The checkpoint has no weight ${name}`);
    return found;
  }
}
