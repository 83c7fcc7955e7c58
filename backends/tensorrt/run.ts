import { ServerError } from "../../proto/status.ts";
import { byteSizeOf, elementCount, type Tensor } from "../../proto/tensor.ts";
import { CallList, type FailedCall } from "../../ffi/call_list.ts";
import { addressOf } from "../../ffi/memory.ts";
import { errorText } from "../../ffi/tensorrt/error.ts";
import type { ExecuteRequest } from "../backend.ts";
import { joinBytes } from "../batch.ts";
import {
  DirectPlaces,
  inputCopies,
  isHere,
  type PlacedParts,
  placeParts,
  usesClientMemory,
} from "./client_memory.ts";
import { chooseContext, prepareContext } from "./context_state.ts";
import { findGraph } from "./cuda_graphs.ts";
import type { Machine, ProfileContext } from "./machine.ts";
import type { MergedInput } from "./merge_inputs.ts";
import type { OutputBlock } from "./output_blocks.ts";
import { formatByteSize, type OutputPlan } from "./run_plan.ts";

const HOST_TO_DEVICE = 1n;
const DEVICE_TO_HOST = 2n;
const DEVICE_TO_DEVICE = 3n;
/** Up to this size a copy costs less than a pinned block that is out while a response is sent. */
const COPY_BYTE_SIZE = 16 * 1024;
/** How often a run is made again because an output needed more memory than it had. */
const MAX_GROWTHS = 3;
const NO_BYTES = new Uint8Array();

/** A whole output of a run, and what to do when its bytes are not needed any more. */
export interface CollectedOutput {
  /** Without bytes when all of it is placed. */
  readonly tensor: Tensor;
  readonly release: (() => void) | undefined;
  /** What of it went to memory of clients on the GPU. */
  readonly placed: PlacedParts | undefined;
}

/** What to run: the requests, their merged inputs, the wanted outputs, and the rows of all requests together. */
export interface RunOrder {
  readonly requests: readonly ExecuteRequest[];
  readonly inputs: readonly MergedInput[];
  readonly outputNames: readonly string[];
  readonly rowCount: number;
}

interface PendingOutput {
  readonly plan: OutputPlan;
  readonly shape: readonly number[];
  /** Undefined when nobody wants it on this machine. */
  readonly block: OutputBlock | undefined;
  readonly placed: PlacedParts | undefined;
}

/**
 * Runs a batch: copies in, computes, copies out, and waits, all as one list of calls where the sizes of the outputs are
 * known before. When it throws, no memory is in use any more.
 */
export async function runBatch(machine: Machine, order: RunOrder): Promise<CollectedOutput[]> {
  machine.logPosition = machine.library.logger.position;
  const isInClientMemory = usesClientMemory(machine, order);
  try {
    const direct = isInClientMemory ? new DirectPlaces(machine, order) : undefined;
    return await runCalls(machine, order, direct);
  } catch (error) {
    // Copies that had begun may still read there.
    if (isInClientMemory) await awaitStreams(machine);
    throw error;
  } finally {
    // It keeps the bytes of requests.
    machine.list.clear();
  }
}

async function runCalls(
  machine: Machine,
  order: RunOrder,
  direct: DirectPlaces | undefined,
): Promise<CollectedOutput[]> {
  const graph = findGraph(machine, order);
  const state = graph === undefined ? chooseContext(machine, order.inputs) : undefined;
  if (state !== undefined) await prepareContext(machine, state, order.inputs, direct);
  const { list } = machine;
  machine.device.begin(list);
  const inputs = direct === undefined
    ? order.inputs
    : order.inputs.filter(({ plan }) => !direct.has(plan.name));
  const failure = await addInputs(machine, inputs, list);
  if (failure !== undefined) throw await runFailure(machine, failure);
  if (graph !== undefined) {
    machine.device.add(list, "cudaGraphLaunch", [graph.address, machine.stream]);
    return await finish(machine, order, { list, shapes: graph.outputShapes, direct });
  }
  state!.context.addEnqueue(list, machine.stream);
  const hasUnknown = [...state!.outputShapes.values()].some((shape) => shape.includes(-1));
  const { outputShapes } = state!;
  if (!hasUnknown) return await finish(machine, order, { list, shapes: outputShapes, direct });
  const shapes = await runForShapes(machine, state!, list);
  list.clear();
  machine.device.begin(list);
  return await finish(machine, order, { list, shapes, direct });
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
  if (parts.some(({ place }) => isHere(machine, place))) {
    addDirectCopies(machine, input, { list, to: target.address });
    return;
  }
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
  machine: Machine,
  input: MergedInput,
  { list, to }: { readonly list: CallList; readonly to: bigint },
): void {
  const { device, stream } = machine;
  for (const { part, to: target, from } of inputCopies(machine, input, to)) {
    const size = BigInt(byteSizeOf(part));
    if (size === 0n) continue;
    if (from !== undefined) {
      device.add(list, "cudaMemcpyAsync", [target, from, size, DEVICE_TO_DEVICE, stream]);
      continue;
    }
    const source = addressOf(part.data as Uint8Array<ArrayBuffer>);
    device.add(list, "cudaMemcpyAsync", [target, source, size, HOST_TO_DEVICE, stream]);
    list.keep(part.data);
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
  { list, shapes, direct }: {
    readonly list: CallList;
    readonly shapes: ReadonlyMap<string, readonly number[]>;
    readonly direct: DirectPlaces | undefined;
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
    for (const { block } of outputs) block?.release();
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
    const address = direct?.has(name) ? 0n : machine.buffers.find(name)?.address ?? 0n;
    const placed = direct && placeParts(machine, { plan, shape, byteSize, address }, order);
    for (const { to, from, byteSize: size } of placed?.copies ?? []) {
      const args = [to, from, BigInt(size), DEVICE_TO_DEVICE, outputStream];
      device.add(list, "cudaMemcpyAsync", args);
    }
    if (placed?.needsHost === false) return { plan, shape, block: undefined, placed };
    const taken = machine.blocks.take(byteSize);
    const block = taken instanceof Promise ? await taken : taken;
    if (byteSize > 0 && !plan.tensor.isOnHost) {
      const args = [block.address, address, BigInt(byteSize), DEVICE_TO_HOST, outputStream];
      device.add(list, "cudaMemcpyAsync", args);
      list.keep(block);
    }
    return { plan, shape, block, placed };
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

function collect(machine: Machine, { plan, shape, block, placed }: PendingOutput): CollectedOutput {
  const { name, datatype } = plan;
  if (block === undefined) {
    return { tensor: { name, datatype, shape, data: NO_BYTES }, release: undefined, placed };
  }
  if (plan.tensor.isOnHost) {
    block.bytes.set(machine.buffers.host(name, 1).subarray(0, block.bytes.byteLength));
  }
  if (block.bytes.byteLength > COPY_BYTE_SIZE) {
    const tensor = { name, datatype, shape, data: block.bytes };
    return { tensor, release: block.release, placed };
  }
  const data = block.bytes.slice();
  block.release();
  return { tensor: { name, datatype, shape, data }, release: undefined, placed };
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

/** Waits until the streams have ended what they had begun, whatever became of it. */
async function awaitStreams({ device, library, stream, outputStream }: Machine): Promise<void> {
  const list = new CallList();
  device.begin(list);
  for (const each of new Set([stream, outputStream])) {
    const address = device.cuda.addresses.cudaStreamSynchronize;
    list.add("cudaStreamSynchronize", address, { args: [each], expect: "anything" });
  }
  await list.run(library.runner);
}

/** The error of a failed call. Before it returns, the streams have ended what they had begun. */
async function runFailure(machine: Machine, failed: FailedCall): Promise<ServerError> {
  const { device, library, plan } = machine;
  await awaitStreams(machine);
  const reasons = errorText(library.logger.since(machine.logPosition));
  const what = failed.name === "enqueueV3"
    ? `TensorRT cannot run model '${plan.modelName}'`
    : device.failure(failed.name, Number(failed.result & 0xffff_ffffn)).message;
  return new ServerError("INTERNAL", reasons === "" ? what : `${what}: ${reasons}`);
}
