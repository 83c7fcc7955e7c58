import type { ModelConfig, ModelOptimizationPolicy_Cuda } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { CallList } from "../../ffi/call_list.ts";
import { addressOf, OutParameter } from "../../ffi/memory.ts";
import { refusal } from "../../ffi/tensorrt/error.ts";
import { prepareContext } from "./context_state.ts";
import type { CudaGraph, Machine, ProfileContext } from "./machine.ts";
import type { MergedInput } from "./merge_inputs.ts";
import type { RunOrder } from "./run.ts";
import { formatByteSize } from "./run_plan.ts";

/** Batch sizes that are captured when the configuration names none. */
const DEFAULT_BATCH_SIZES = [1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128];
/** Captures of one thread do not disturb those of others, and the whole capture runs on one thread. */
const THREAD_LOCAL_CAPTURE = 1n;

/** Shapes to capture. */
interface GraphShapes {
  readonly shapes: ReadonlyMap<string, readonly number[]>;
  readonly minRows: number;
}

/** The graph of exactly these shapes, or of more rows where that is allowed; undefined when there is none. */
export function findGraph(
  { graphs, plan }: Machine,
  { inputs, rowCount }: Pick<RunOrder, "inputs" | "rowCount">,
): CudaGraph | undefined {
  return graphs.find(({ shapes, minRows }) =>
    inputs.every(({ plan: { name }, shape }) => {
      const captured = shapes.get(name);
      if (captured?.length !== shape.length) return false;
      return shape.every((dim, index) => {
        if (index > 0 || !plan.isBatching) return dim === captured[index];
        return dim <= captured[0]! && (dim === captured[0] || rowCount >= minRows);
      });
    })
  );
}

/**
 * The shapes that `optimization.cuda` asks for (config.md §2).
 * @throws ServerError INVALID_ARG when a free dimension of an input has no size in a `graph_spec`.
 */
export function plannedGraphs(
  config: ModelConfig,
  cuda: ModelOptimizationPolicy_Cuda,
  { plan }: Machine,
): GraphShapes[] {
  if (cuda.graphSpec.length === 0) {
    const isKnown = [...plan.inputs.values()].every(({ name }) =>
      !configuredDims(config, name).includes(-1)
    );
    if (!isKnown) return [];
    const sizes = config.maxBatchSize === 0
      ? [0]
      : DEFAULT_BATCH_SIZES.filter((size) => size <= config.maxBatchSize);
    return sizes.map((size) => ({ shapes: specShapes(size, {}), minRows: size }));
  }
  return cuda.graphSpec.map((spec) => {
    const lower = spec.graphLowerBound?.batchSize ?? 0;
    const minRows = lower > 0 ? Math.min(lower, spec.batchSize) : spec.batchSize;
    return { shapes: specShapes(spec.batchSize, spec.input), minRows };
  });

  function specShapes(
    batchSize: number,
    given: Readonly<Record<string, { readonly dim: readonly bigint[] }>>,
  ): Map<string, readonly number[]> {
    return new Map([...plan.inputs.keys()].map((name) => {
      const dims = given[name]?.dim.map(Number) ?? configuredDims(config, name);
      if (!dims.includes(-1)) return [name, plan.isBatching ? [batchSize, ...dims] : dims];
      throw new ServerError(
        "INVALID_ARG",
        `optimization.cuda.graph_spec of model '${plan.modelName}' must tell the size of every free ` +
          `dimension: input '${name}' has dims [${dims}]`,
      );
    }));
  }
}

function configuredDims({ input }: ModelConfig, name: string): number[] {
  const configured = input.find((each) => each.name === name);
  return (configured?.reshape?.shape ?? configured?.dims ?? []).map(Number);
}

/** Why the runs of a machine cannot be captured; undefined when they can. */
export function captureObstacle({ plan, device }: Machine): string | undefined {
  const tensors = [...plan.inputs.values(), ...plan.outputs.values()];
  const shapeTensor = tensors.find(({ tensor }) => tensor.isOnHost);
  if (shapeTensor !== undefined) return `'${shapeTensor.name}' is a shape tensor`;
  if (device.cuda.addresses.cudaGraphInstantiateWithFlags === 0n) {
    return "the CUDA runtime is older than 11.4";
  }
  return undefined;
}

/**
 * Captures one run with these shapes.
 * @throws TensorRtError or CudaError when it cannot be captured; the machine runs on without.
 */
export async function captureGraph(
  machine: Machine,
  state: ProfileContext,
  { shapes, minRows }: GraphShapes,
): Promise<CudaGraph> {
  const inputs = [...shapes].map(([name, shape]): MergedInput => {
    const plan = machine.plan.inputs.get(name)!;
    return { plan, shape, parts: [], byteSize: formatByteSize(plan, shape) };
  });
  await prepareContext(machine, state, inputs);
  for (const [name, shape] of state.outputShapes) {
    if (!shape.includes(-1)) continue;
    throw refusal(`the shape of output '${name}' depends on the data`, []);
  }
  const { device, stream, library } = machine;
  const position = library.logger.mark();
  // TensorRT wants one ordinary run before: it may still allocate then.
  const first = new CallList();
  device.begin(first);
  state.context.addEnqueue(first, stream);
  device.add(first, "cudaStreamSynchronize", [stream]);
  await runOrRefuse(machine, first);
  const graph = new OutParameter();
  const executable = new OutParameter();
  const list = new CallList();
  list.keep(graph.cell);
  device.begin(list);
  device.add(list, "cudaStreamBeginCapture", [stream, THREAD_LOCAL_CAPTURE]);
  state.context.addEnqueue(list, stream);
  device.add(list, "cudaStreamEndCapture", [stream, addressOf(graph.cell)]);
  const failed = await list.run(library.runner);
  if (failed?.name === "enqueueV3") await endCapture(machine, graph);
  if (failed !== undefined) throw refusal(`${failed.name} failed`, library.logger.since(position));
  const make = new CallList();
  make.keep(executable.cell);
  device.begin(make);
  const args = [addressOf(executable.cell), graph.address, 0n];
  device.add(make, "cudaGraphInstantiateWithFlags", args);
  try {
    await device.run(make);
  } finally {
    await device.destroy([{ address: graph.address, destroy: "cudaGraphDestroy" }]);
  }
  const outputShapes = new Map(state.outputShapes);
  return { address: executable.address, shapes, outputShapes, minRows };
}

/** A stream whose capture failed in the middle is of no use until the capture ends. */
async function endCapture(
  { device, stream, library }: Machine,
  graph: OutParameter,
): Promise<void> {
  const list = new CallList();
  list.keep(graph.cell);
  device.begin(list);
  const address = device.cuda.addresses.cudaStreamEndCapture;
  const args = [stream, addressOf(graph.cell)];
  list.add("cudaStreamEndCapture", address, { args, expect: "anything" });
  await list.run(library.runner);
  if (graph.address === 0n) return;
  await device.destroy([{ address: graph.address, destroy: "cudaGraphDestroy" }]);
}

async function runOrRefuse({ library, device }: Machine, list: CallList): Promise<void> {
  const position = library.logger.mark();
  const failed = await list.run(library.runner);
  if (failed === undefined) return;
  if (failed.name === "enqueueV3") {
    throw refusal("enqueueV3 failed", library.logger.since(position));
  }
  throw device.failure(failed.name, Number(failed.result & 0xffff_ffffn));
}
