import { ServerError } from "../../proto/status.ts";
import { elementCount, type Tensor } from "../../proto/tensor.ts";
import { CallList, type FailedCall } from "../../ffi/call_list.ts";
import { addressOf } from "../../ffi/memory.ts";
import { errorText } from "../../ffi/tensorrt/error.ts";
import { joinBytes } from "../batch.ts";
import { chooseContext, prepareContext } from "./context_state.ts";
import { findGraph } from "./cuda_graphs.ts";
import type { Machine, ProfileContext } from "./machine.ts";
import type { MergedInput } from "./merge_inputs.ts";
import type { OutputBlock } from "./output_blocks.ts";
import { formatByteSize, type OutputPlan } from "./run_plan.ts";

const HOST_TO_DEVICE = 1n;
const DEVICE_TO_HOST = 2n;
/** Up to this size a copy costs less than a pinned block that is out while a response is sent. */
const COPY_BYTE_SIZE = 16 * 1024;
/** How often a run is made again because an output needed more memory than it had. */
const MAX_GROWTHS = 3;

/** A whole output of a run, and what to do when its bytes are not needed any more. */
export interface CollectedOutput {
  readonly tensor: Tensor;
  readonly release: (() => void) | undefined;
}

/** What to run: the merged inputs, the wanted outputs, and the rows of all requests together. */
export interface RunOrder {
  readonly inputs: readonly MergedInput[];
  readonly outputNames: readonly string[];
  readonly rowCount: number;
}

interface PendingOutput {
  readonly plan: OutputPlan;
  readonly shape: readonly number[];
  readonly block: OutputBlock;
}

/**
 * Runs a batch: copies in, computes, copies out, and waits, all as one list of calls where the sizes of the outputs are
 * known before. When it throws, no memory is in use any more.
 */
export async function runBatch(machine: Machine, order: RunOrder): Promise<CollectedOutput[]> {
  machine.logPosition = machine.library.logger.position;
  try {
    return await runCalls(machine, order);
  } finally {
    // It keeps the bytes of requests.
    machine.list.clear();
  }
}

async function runCalls(machine: Machine, order: RunOrder): Promise<CollectedOutput[]> {
  const graph = findGraph(machine, order);
  const state = graph === undefined ? chooseContext(machine, order.inputs) : undefined;
  if (state !== undefined) await prepareContext(machine, state, order.inputs);
  const { list } = machine;
  machine.device.begin(list);
  const failure = await addInputs(machine, order.inputs, list);
  if (failure !== undefined) throw await runFailure(machine, failure);
  if (graph !== undefined) {
    machine.device.add(list, "cudaGraphLaunch", [graph.address, machine.stream]);
    return await finish(machine, order, { list, shapes: graph.outputShapes });
  }
  state!.context.addEnqueue(list, machine.stream);
  const hasUnknown = [...state!.outputShapes.values()].some((shape) => shape.includes(-1));
  if (!hasUnknown) return await finish(machine, order, { list, shapes: state!.outputShapes });
  const shapes = await runForShapes(machine, state!, list);
  list.clear();
  machine.device.begin(list);
  return await finish(machine, order, { list, shapes });
}

/**
 * Adds the copies of the inputs to the list. Eager machines start each copy by itself as soon as its bytes are
 * together, and the first that failed is returned.
 */
async function addInputs(
  machine: Machine,
  inputs: readonly MergedInput[],
  list: CallList,
): Promise<FailedCall | undefined> {
  const started: Promise<FailedCall | undefined>[] = [];
  try {
    for (const input of inputs) {
      if (input.byteSize === 0 || input.plan.tensor.isOnHost) continue;
      if (!machine.isEager) {
        await addInput(machine, input, list);
        continue;
      }
      const copies = new CallList();
      machine.device.begin(copies);
      await addInput(machine, input, copies);
      started.push(runList(machine, copies));
    }
  } finally {
    // Whatever happens: nothing may still read an input afterwards.
    await Promise.all(started);
  }
  return (await Promise.all(started)).find((each) => each !== undefined);
}

async function addInput(machine: Machine, input: MergedInput, list: CallList): Promise<void> {
  const { device, buffers, stream } = machine;
  const { plan: { name }, parts, byteSize } = input;
  const target = buffers.find(name);
  if (target === undefined) throw new TypeError(`Input '${name}' has no device memory`);
  const pending = buffers.staging(name, byteSize);
  const staging = pending instanceof Promise ? await pending : pending;
  if (staging === undefined) {
    addDirectCopies(machine, input, { list, to: target.address });
    return;
  }
  if (parts.length === 1) staging.bytes.set(parts[0]!.data);
  else joinBytes(parts, staging.bytes);
  const size = BigInt(byteSize);
  device.add(list, "cudaMemcpyAsync", [
    target.address,
    staging.object.address,
    size,
    HOST_TO_DEVICE,
    stream,
  ]);
}

/** Copies the parts from where they are, one behind the other. */
function addDirectCopies(
  { device, stream }: Machine,
  { parts }: MergedInput,
  { list, to }: { readonly list: CallList; readonly to: bigint },
): void {
  let target = to;
  for (const { data } of parts) {
    if (data.byteLength === 0) continue;
    const size = BigInt(data.byteLength);
    const source = addressOf(data as Uint8Array<ArrayBuffer>);
    device.add(list, "cudaMemcpyAsync", [target, source, size, HOST_TO_DEVICE, stream]);
    list.keep(data);
    target += size;
  }
}

/** Runs up to the computation, which tells the shapes that were not known; memory that is too small is replaced. */
async function runForShapes(
  machine: Machine,
  state: ProfileContext,
  list: CallList,
): Promise<ReadonlyMap<string, readonly number[]>> {
  for (let growths = 0;; growths++) {
    const failed = await runList(machine, list);
    if (failed === undefined) break;
    const error = await runFailure(machine, failed);
    const hasGrown = failed.name === "enqueueV3" && growths < MAX_GROWTHS &&
      await growOutputs(machine);
    if (!hasGrown) throw error;
  }
  const shapes = new Map(state.outputShapes);
  for (const [name, allocator] of machine.allocators) {
    const { shape } = allocator;
    if (shape === undefined) {
      throw new ServerError("INTERNAL", `the run did not tell the shape of output '${name}'`);
    }
    shapes.set(name, shape);
  }
  return shapes;
}

/** True when some output wanted more memory than there was, and now has it. */
async function growOutputs({ allocators, buffers }: Machine): Promise<boolean> {
  let hasGrown = false;
  for (const [name, allocator] of allocators) {
    const needed = allocator.neededByteSize;
    if (needed > (buffers.find(name)?.byteSize ?? 0)) {
      const buffer = await buffers.grow(name, needed);
      allocator.setBlock(buffer.address, buffer.byteSize);
      hasGrown = true;
    }
    allocator.reset();
  }
  return hasGrown;
}

/** Adds the copies of the outputs, runs the list to its end, and collects. */
async function finish(
  machine: Machine,
  order: RunOrder,
  { list, shapes }: {
    readonly list: CallList;
    readonly shapes: ReadonlyMap<string, readonly number[]>;
  },
): Promise<CollectedOutput[]> {
  const { device, outputStream, stream, computedEvent, doneEvent } = machine;
  if (computedEvent !== undefined) {
    device.add(list, "cudaEventRecord", [computedEvent, stream]);
    device.add(list, "cudaStreamWaitEvent", [outputStream, computedEvent, 0n]);
  }
  const outputs: PendingOutput[] = [];
  try {
    for (const name of order.outputNames) outputs.push(await addOutput(name));
    device.add(list, "cudaEventRecord", [doneEvent, outputStream]);
    device.add(list, "cudaEventSynchronize", [doneEvent]);
    const failed = await runList(machine, list);
    if (failed !== undefined) throw await runFailure(machine, failed);
  } catch (error) {
    for (const { block } of outputs) block.release();
    throw error;
  }
  return outputs.map((output) => collect(machine, output));

  async function addOutput(name: string): Promise<PendingOutput> {
    const plan = machine.plan.outputs.get(name);
    const full = shapes.get(name);
    if (plan === undefined || full === undefined) {
      throw new ServerError(
        "INTERNAL",
        `model '${machine.plan.modelName}' has no output '${name}'`,
      );
    }
    const shape = usedShape(machine, plan, { full, rowCount: order.rowCount });
    const byteSize = plan.tensor.isOnHost
      ? elementCount(shape) * plan.elementSize
      : formatByteSize(plan, shape);
    const taken = machine.blocks.take(byteSize);
    const block = taken instanceof Promise ? await taken : taken;
    if (byteSize > 0 && !plan.tensor.isOnHost) {
      const source = machine.buffers.find(name)!.address;
      const args = [block.address, source, BigInt(byteSize), DEVICE_TO_HOST, outputStream];
      device.add(list, "cudaMemcpyAsync", args);
      list.keep(block);
    }
    return { plan, shape, block };
  }
}

/** A graph may compute more rows than there are requests: the first ones are theirs. */
function usedShape(
  { plan: { isBatching } }: Machine,
  { tensor, scatter }: OutputPlan,
  { full, rowCount }: { readonly full: readonly number[]; readonly rowCount: number },
): readonly number[] {
  const isCut = isBatching && !tensor.isShapeTensor && scatter === undefined &&
    tensor.dims[0] === -1 && full[0]! > rowCount;
  return isCut ? [rowCount, ...full.slice(1)] : full;
}

function collect(machine: Machine, { plan, shape, block }: PendingOutput): CollectedOutput {
  const { name, datatype } = plan;
  if (plan.tensor.isOnHost) {
    block.bytes.set(machine.buffers.host(name, 1).subarray(0, block.bytes.byteLength));
  }
  if (block.bytes.byteLength > COPY_BYTE_SIZE) {
    return { tensor: { name, datatype, shape, data: block.bytes }, release: block.release };
  }
  const data = block.bytes.slice();
  block.release();
  return { tensor: { name, datatype, shape, data }, release: undefined };
}

async function runList(
  { gate, library }: Machine,
  list: CallList,
): Promise<FailedCall | undefined> {
  const turn = gate.enter();
  if (turn !== undefined) await turn;
  try {
    return await list.run(library.runner);
  } finally {
    gate.leave();
  }
}

/** The error of a failed call. Before it returns, the streams have ended what they had begun. */
async function runFailure(machine: Machine, failed: FailedCall): Promise<ServerError> {
  const { device, library, plan, stream, outputStream } = machine;
  const list = new CallList();
  device.begin(list);
  for (const each of new Set([stream, outputStream])) {
    const address = device.cuda.addresses.cudaStreamSynchronize;
    list.add("cudaStreamSynchronize", address, { args: [each], expect: "anything" });
  }
  await list.run(library.runner);
  const reasons = errorText(library.logger.since(machine.logPosition));
  const what = failed.name === "enqueueV3"
    ? `TensorRT cannot run model '${plan.modelName}'`
    : device.failure(failed.name, Number(failed.result & 0xffff_ffffn)).message;
  return new ServerError("INTERNAL", reasons === "" ? what : `${what}: ${reasons}`);
}
