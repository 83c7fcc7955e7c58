import { ServerError } from "../../proto/status.ts";
import { errorText } from "../../ffi/tensorrt/error.ts";
import { addressOf } from "../../ffi/memory.ts";
import { OutputAllocator } from "../../ffi/tensorrt/output_allocator.ts";
import type { DirectPlaces } from "./client_memory.ts";
import type { Machine, ProfileContext } from "./machine.ts";
import type { MergedInput } from "./merge_inputs.ts";
import { profileDistance, profileMisfit } from "./profile.ts";
import { formatByteSize, type OutputPlan } from "./run_plan.ts";

/** Values a shape tensor has room for: as many as a shape has dimensions, with some to spare. */
const MAX_SHAPE_VALUES = 64;
/** First block for an output whose size has no bound, and the largest one that is made before it is asked for. */
const FIRST_BLOCK_BYTE_SIZE = 1024 * 1024;
const MAX_FIRST_BLOCK_BYTE_SIZE = 64 * 1024 * 1024;

/**
 * The context whose profile suits the shapes best.
 * @throws ServerError INVALID_ARG telling which dimension fits no profile.
 */
export function chooseContext(
  { contexts, plan }: Machine,
  inputs: readonly MergedInput[],
): ProfileContext {
  let best: ProfileContext | undefined;
  let bestDistance = Infinity;
  let fault = "";
  for (const each of contexts) {
    let distance = 0;
    for (const { plan: { name, tensor }, shape } of inputs) {
      const shapes = tensor.profiles[each.profile];
      if (shapes === undefined || tensor.isShapeTensor) continue;
      const misfit = profileMisfit(shape, shapes);
      if (misfit !== undefined) {
        fault ||=
          `request specifies invalid shape for input '${name}' for ${plan.modelName}. Error ` +
          `details: ${misfit}`;
        distance = Infinity;
        break;
      }
      if (contexts.length > 1) distance += profileDistance(shape, shapes);
    }
    if (distance >= bestDistance) continue;
    [best, bestDistance] = [each, distance];
  }
  if (best !== undefined) return best;
  throw new ServerError("INVALID_ARG", fault);
}

/**
 * Tells a context the shapes of its inputs, the values of shape tensors, and where all tensors are; memory of outputs
 * that turn out larger than before is replaced. What did not change is not told again. Tensors of `direct` lie in memory
 * of clients for this run.
 * @throws ServerError INVALID_ARG when TensorRT refuses a shape; CudaError when the device has no memory left.
 */
export async function prepareContext(
  machine: Machine,
  state: ProfileContext,
  inputs: readonly MergedInput[],
  direct?: DirectPlaces,
): Promise<void> {
  let isChanged = state.outputShapes.size === 0;
  for (const input of inputs) {
    const { name, tensor } = input.plan;
    const address = direct?.input(input);
    if (address !== undefined) setAddress(state, name, { address, isInput: true });
    else if (tensor.isOnHost) isChanged = setHostInput(machine, state, input) || isChanged;
    // Another profile may have moved it.
    else await placeTensor(machine, state, { name, byteSize: input.byteSize, tensor });
    if (!isSameShape(state.shapes.get(input.plan.name), input.shape)) {
      setShape(machine, state, input);
      isChanged = true;
    }
  }
  if (isChanged) readOutputShapes(machine, state);
  for (const output of machine.plan.outputs.values()) {
    const shape = state.outputShapes.get(output.name)!;
    if (output.tensor.isOnHost) setHostOutput(machine, state, output);
    else if (shape.includes(-1)) await prepareAllocator(machine, state, output);
    else {
      const address = direct?.output(output, shape);
      const byteSize = formatByteSize(output, shape);
      if (address === undefined) await placeTensor(machine, state, { ...output, byteSize });
      else setAddress(state, output.name, { address, isInput: false });
    }
  }
}

function isSameShape(
  one: readonly number[] | undefined,
  other: readonly number[],
): boolean {
  return one?.length === other.length && one.every((dim, index) => dim === other[index]);
}

function setShape(
  { plan, library }: Machine,
  { context, shapes }: ProfileContext,
  { plan: { name }, shape }: MergedInput,
): void {
  shapes.delete(name);
  const { position } = library.logger;
  if (context.setInputShape(name, shape)) {
    shapes.set(name, [...shape]);
    return;
  }
  const reasons = errorText(library.logger.since(position));
  throw new ServerError(
    "INVALID_ARG",
    `request specifies invalid shape [${shape}] for input '${name}' for ${plan.modelName}` +
      (reasons === "" ? "" : `: ${reasons}`),
  );
}

/** Puts the values of a shape tensor in place; true when they are others than before. */
function setHostInput(
  { buffers }: Machine,
  state: ProfileContext,
  { plan: { name, elementSize }, parts }: MergedInput,
): boolean {
  const { data } = parts[0]!;
  const bytes = buffers.host(name, Math.max(data.byteLength, elementSize * MAX_SHAPE_VALUES));
  const address = addressOf(bytes);
  const isKnown = state.addresses.get(name) === address &&
    data.every((byte, index) => bytes[index] === byte);
  if (isKnown) return false;
  bytes.set(data);
  // Also where the address is the same: TensorRT reads the values again.
  state.context.setInputAddress(name, address);
  state.addresses.set(name, address);
  return true;
}

function setHostOutput({ buffers }: Machine, state: ProfileContext, output: OutputPlan): void {
  const bytes = buffers.host(output.name, output.elementSize * MAX_SHAPE_VALUES);
  setAddress(state, output.name, { address: addressOf(bytes), isInput: false });
}

function readOutputShapes({ plan, library }: Machine, state: ProfileContext): void {
  const { context, outputShapes } = state;
  outputShapes.clear();
  const { position } = library.logger;
  const missing = context.inferShapes();
  for (const { name } of plan.outputs.values()) {
    const shape = missing === 0 ? context.shapeOf(name) : undefined;
    if (shape === undefined || shape.some((dim) => dim < -1)) {
      outputShapes.clear();
      const reasons = errorText(library.logger.since(position));
      throw new ServerError(
        "INVALID_ARG",
        `the shape of output '${name}' of model '${plan.modelName}' cannot be told` +
          (reasons === "" ? "" : `: ${reasons}`),
      );
    }
    outputShapes.set(name, shape);
  }
}

/** Sees to it that a tensor has device memory of this size and that the context knows its place. */
export async function placeTensor(
  machine: Machine,
  state: ProfileContext,
  { name, byteSize, tensor }: {
    readonly name: string;
    readonly byteSize: number;
    readonly tensor: { readonly isInput: boolean };
  },
): Promise<void> {
  const { buffers } = machine;
  let buffer = buffers.find(name);
  if (buffer === undefined || buffer.byteSize < byteSize) {
    // Captured runs know the old place.
    await dropGraphs(machine);
    buffer = await buffers.grow(name, byteSize);
  }
  setAddress(state, name, { address: buffer.address, isInput: tensor.isInput });
}

/** Frees all captured runs. */
export async function dropGraphs({ graphs, device }: Machine): Promise<void> {
  if (graphs.length === 0) return;
  const dropped = graphs.splice(0);
  await device.destroy(
    dropped.map(({ address }) => ({ address, destroy: "cudaGraphExecDestroy" as const })),
  );
}

function setAddress(
  { context, addresses }: ProfileContext,
  name: string,
  { address, isInput }: { readonly address: bigint; readonly isInput: boolean },
): void {
  if (addresses.get(name) === address) return;
  const isTaken = isInput
    ? context.setInputAddress(name, address)
    : context.setOutputAddress(name, address);
  if (!isTaken) {
    throw new ServerError("INTERNAL", `TensorRT refuses the memory for tensor '${name}'`);
  }
  addresses.set(name, address);
}

/** Gives a context the allocator of an output whose shape only the run tells. */
async function prepareAllocator(
  machine: Machine,
  { context, addresses }: ProfileContext,
  { name }: OutputPlan,
): Promise<void> {
  const { allocators, library, buffers } = machine;
  let allocator = allocators.get(name);
  if (allocator === undefined) {
    allocator = new OutputAllocator(library.code, library.table);
    allocators.set(name, allocator);
  }
  if (addresses.get(name) !== allocator.address) {
    context.setOutputAllocator(name, allocator.address);
    addresses.set(name, allocator.address);
  }
  const bound = context.maxOutputByteSize(name);
  const wanted = bound < 0 ? FIRST_BLOCK_BYTE_SIZE : Math.min(bound, MAX_FIRST_BLOCK_BYTE_SIZE);
  let buffer = buffers.find(name);
  if (buffer === undefined || buffer.byteSize < wanted) buffer = await buffers.grow(name, wanted);
  allocator.setBlock(buffer.address, buffer.byteSize);
  allocator.reset();
}
