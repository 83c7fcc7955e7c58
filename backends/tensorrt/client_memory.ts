import { byteSizeOf, type DevicePlace, type Tensor } from "../../proto/tensor.ts";
import type { ExecuteRequest } from "../backend.ts";
import { type OutputTarget, placedOutput } from "../output_target.ts";
import type { Machine } from "./machine.ts";
import type { MergedInput } from "./merge_inputs.ts";
import type { RunOrder } from "./run.ts";
import { formatByteSize, type OutputPlan } from "./run_plan.ts";

/** TensorRT takes tensors at multiples of this. */
const ALIGNMENT = 256n;

/** Whether something of the requests lies on the GPU of the machine, or is to go there. */
export function usesClientMemory(machine: Machine, { inputs, requests }: RunOrder): boolean {
  for (const { parts } of inputs) {
    for (const { place } of parts) if (isHere(machine, place)) return true;
  }
  for (const { targets } of requests) {
    if (targets === undefined) continue;
    for (const { place } of targets.values()) if (isHere(machine, place)) return true;
  }
  return false;
}

/** Whether bytes lie on the GPU of the machine. */
export function isHere({ device }: Machine, place: DevicePlace | undefined): place is DevicePlace {
  return place?.deviceId === device.deviceId;
}

/** The memory of clients that a run computes in: tensors that need no memory of the instance. */
export class DirectPlaces {
  readonly #machine: Machine;
  readonly #order: RunOrder;
  readonly #names = new Set<string>();

  constructor(machine: Machine, order: RunOrder) {
    this.#machine = machine;
    this.#order = order;
  }

  /** Address of an input of one request; undefined when it has to be moved. */
  input({ plan: { name, tensor }, parts, byteSize }: MergedInput): bigint | undefined {
    if (parts.length !== 1 || byteSize === 0 || tensor.isOnHost) return undefined;
    return this.#take(name, parts[0]!.place);
  }

  /** Address for an output of one request; undefined when it does not go there as a whole. */
  output(plan: OutputPlan, shape: readonly number[]): bigint | undefined {
    const { requests, rowCount } = this.#order;
    const [request] = requests;
    if (requests.length !== 1 || !request!.outputs.includes(plan.name)) return undefined;
    const target = request!.targets?.get(plan.name);
    if (target === undefined) return undefined;
    const byteSize = formatByteSize(plan, shape);
    const { isBatching } = this.#machine.plan;
    const isWhole = plan.scatter === undefined &&
      (!isBatching || (shape[0] === rowCount && plan.tensor.vectorizedDim !== 0));
    if (!isWhole || byteSize === 0 || byteSize > target.byteSize) return undefined;
    return this.#take(plan.name, target.place);
  }

  /** Whether the run computes in the client's memory for this tensor. */
  has(name: string): boolean {
    return this.#names.has(name);
  }

  #take(name: string, place: DevicePlace | undefined): bigint | undefined {
    if (!isHere(this.#machine, place) || place.address % ALIGNMENT !== 0n) return undefined;
    this.#names.add(name);
    return place.address;
  }
}

/** An output of a run with its memory on the GPU. */
export interface ComputedOutput {
  readonly plan: OutputPlan;
  readonly shape: readonly number[];
  readonly byteSize: number;
  /** Where it was computed; 0n = in its target. */
  readonly address: bigint;
}

/** A copy from one place on the GPU to another. */
export interface DeviceCopy {
  readonly to: bigint;
  readonly from: bigint;
  readonly byteSize: number;
}

/** What becomes of an output that some request wants on the GPU. */
export interface PlacedParts {
  /** For each request its part, where it goes to its target. */
  readonly tensors: readonly (Tensor | undefined)[];
  readonly copies: readonly DeviceCopy[];
  /** Whether a request wants it otherwise: then it comes to this machine as well. */
  readonly needsHost: boolean;
}

/** Shares an output on the GPU among the targets of the requests; undefined when none of them is there. */
export function placeParts(
  machine: Machine,
  { plan, shape, byteSize, address }: ComputedOutput,
  { requests, rowCount }: RunOrder,
): PlacedParts | undefined {
  const { name, datatype, scatter, scalarDims, tensor } = plan;
  const { isBatching } = machine.plan;
  const rows = isBatching ? shape[0] ?? 0 : 1;
  const isCut = isBatching && (tensor.vectorizedDim === 0 || rows < rowCount);
  if (byteSize === 0 || tensor.isOnHost || scatter !== undefined || isCut) return undefined;
  const rowSize = byteSize / rows;
  const tensors: (Tensor | undefined)[] = [];
  const copies: DeviceCopy[] = [];
  let needsHost = false;
  let offset = 0;
  for (const request of requests) {
    const partSize = isBatching ? request.batchSize * rowSize : byteSize;
    const target = targetOf(machine, request, { name, byteSize: partSize });
    const partShape = isBatching ? [request.batchSize, ...shape.slice(1)] : shape;
    const shown = shape.length === 0 ? scalarDims ?? shape : partShape;
    tensors.push(target && placedOutput(target, { name, datatype, shape: shown }, partSize));
    if (target === undefined) needsHost ||= request.outputs.includes(name);
    else if (address !== 0n) {
      const { address: to } = target.place!;
      copies.push({ to, from: address + BigInt(offset), byteSize: partSize });
    }
    offset += partSize;
  }
  return tensors.every((each) => each === undefined) ? undefined : { tensors, copies, needsHost };
}

function targetOf(
  machine: Machine,
  { outputs, targets }: ExecuteRequest,
  { name, byteSize }: { readonly name: string; readonly byteSize: number },
): OutputTarget | undefined {
  const target = targets?.get(name);
  if (target === undefined || target.byteSize < byteSize || !outputs.includes(name)) {
    return undefined;
  }
  return isHere(machine, target.place) ? target : undefined;
}

/** Where the parts of an input lie on the GPU, one behind the other from `to` on; undefined for those that do not. */
export function inputCopies(
  machine: Machine,
  { parts }: MergedInput,
  to: bigint,
): readonly { readonly part: Tensor; readonly to: bigint; readonly from: bigint | undefined }[] {
  let offset = 0n;
  return parts.map((part) => {
    const from = isHere(machine, part.place) ? part.place.address : undefined;
    const copy = { part, to: to + offset, from };
    offset += BigInt(byteSizeOf(part));
    return copy;
  });
}
