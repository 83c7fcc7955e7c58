import type { DevicePlace, Tensor } from "../../proto/tensor.ts";
import { byteSizeOf } from "../../proto/tensor.ts";
import { CallList, type CallRunner } from "../../ffi/call_list.ts";
import type { DeviceCalls, DeviceObject } from "../../ffi/cuda/device_calls.ts";
import { addressOf } from "../../ffi/memory.ts";
import type { ExecuteRequest } from "../backend.ts";
import { joinBytes, joinedByteSize, joinedShape, splitRows } from "../batch.ts";
import { canMerge, mergeInputs, wantedOutputs } from "../onnx_merge_inputs.ts";
import { type OutputTarget, placedOutput } from "../output_target.ts";
import type { OnnxModel } from "./model.ts";
import { foreseeOutput } from "./prepare_run.ts";
import { needsMove, usesDevice } from "./session_memory.ts";

/** How bytes are copied to, from and on the GPU of a session. */
export interface GpuCopies {
  readonly device: DeviceCalls;
  readonly runner: CallRunner;
}

/** `cudaMemcpyKind`. */
const KIND = { toDevice: 1n, toHost: 2n, onDevice: 3n } as const;

interface GpuCopy {
  readonly to: bigint;
  readonly from: bigint;
  readonly byteSize: number;
  readonly kind: bigint;
  /** Bytes of this machine that it reads or writes. */
  readonly host?: Uint8Array;
}

/**
 * Joins requests whose tensors lie on the GPU of the session there, so that they run as one, and shares out what comes
 * of it. One alone it moves to where kernels can work on it. For one batch at a time.
 */
export class GpuBatch implements AsyncDisposable {
  readonly #model: OnnxModel;
  readonly #copies: GpuCopies;
  readonly #scratch = new Map<string, { object: DeviceObject; byteSize: number }>();
  #stream: DeviceObject | undefined;

  constructor(model: OnnxModel, copies: GpuCopies) {
    this.#model = model;
    this.#copies = copies;
  }

  /** Whether the requests can run as one, and something of them lies on the GPU; of one alone: where it must be moved. */
  canJoin(requests: readonly ExecuteRequest[]): boolean {
    const { plan, memory } = this.#model;
    const [first, second] = requests;
    const isWorthIt = second === undefined
      ? memory !== undefined && needsMove(memory, first!)
      : requests.some((request) => usesDevice(memory, request));
    if (!isWorthIt) return false;
    const isPlain = plan.batchInputs.length === 0 &&
      plan.inputs.values().every(({ isRagged }) => !isRagged) &&
      plan.outputs.values().every(({ scatter }) => scatter === undefined);
    return isPlain && (second === undefined || canMerge(plan, requests));
  }

  /**
   * One request that stands for all, its tensors in memory of the instance.
   * @throws CudaError, or ServerError for inputs that the model does not have.
   */
  async join(requests: readonly ExecuteRequest[]): Promise<ExecuteRequest> {
    const copies: GpuCopy[] = [];
    const inputs: Tensor[] = [];
    for (const index of requests[0]!.inputs.keys()) {
      inputs.push(await this.#joinInput(requests.map((each) => each.inputs[index]!), copies));
    }
    const outputs = wantedOutputs(requests);
    const plain = standIn(inputs, outputs, requests);
    const merged = { inputs: mergeInputs(this.#model, [plain]), requests: [plain] };
    const targets = new Map<string, OutputTarget>();
    for (const name of outputs) {
      if (!requests.some(({ targets }) => this.#isHere(targets?.get(name)?.place))) continue;
      const output = this.#model.plan.outputs.get(name);
      const foreseen = output && foreseeOutput(output, merged);
      if (foreseen === undefined || foreseen.byteSize === 0) continue;
      const { byteSize } = foreseen;
      const place = await this.#reserve(`output ${name}`, byteSize);
      targets.set(name, { byteSize, place, read: () => neverRead(name) });
    }
    await this.#run(copies);
    return { ...plain, targets };
  }

  async #joinInput(parts: readonly Tensor[], copies: GpuCopy[]): Promise<Tensor> {
    const { name, datatype } = parts[0]!;
    const [shape, byteSize] = [joinedShape(parts), joinedByteSize(parts)];
    if (!parts.some(({ place }) => this.#isHere(place)) || byteSize === 0) {
      const data = new Uint8Array(byteSize);
      joinBytes(parts, data);
      return { name, datatype, shape, data };
    }
    const place = await this.#reserve(`input ${name}`, byteSize);
    let to = place.address;
    for (const part of parts) {
      const size = byteSizeOf(part);
      if (this.#isHere(part.place)) {
        copies.push({ to, from: part.place.address, byteSize: size, kind: KIND.onDevice });
      } else if (size > 0) {
        const host = part.data as Uint8Array<ArrayBuffer>;
        copies.push({ to, from: addressOf(host), byteSize: size, kind: KIND.toDevice, host });
      }
      to += BigInt(size);
    }
    return { name, datatype, shape, place, data: NO_BYTES };
  }

  /** The outputs of each request, from those of the one that stood for all. @throws CudaError */
  async share(
    outputs: readonly Tensor[],
    requests: readonly ExecuteRequest[],
  ): Promise<readonly (readonly Tensor[])[]> {
    const copies: GpuCopy[] = [];
    const shares = requests.map((): Tensor[] => []);
    for (const output of outputs) {
      const parts = output.place === undefined
        ? splitHost(output, requests)
        : this.#shareOutput(output, output.place, { requests, copies });
      for (const [index, part] of parts.entries()) {
        const isWanted = requests[index]!.outputs.includes(output.name);
        if (isWanted && part !== undefined) shares[index]!.push(part);
      }
    }
    await this.#run(copies);
    return shares;
  }

  #shareOutput(
    { name, datatype, shape }: Tensor,
    place: DevicePlace,
    { requests, copies }: {
      readonly requests: readonly ExecuteRequest[];
      readonly copies: GpuCopy[];
    },
  ): (Tensor | undefined)[] {
    const isAlone = requests.length === 1;
    const rowSize = place.byteSize / (shape[0] ?? 1);
    let from = place.address;
    return requests.map(({ batchSize, outputs, targets }) => {
      const byteSize = isAlone ? place.byteSize : rowSize * batchSize;
      const start = from;
      from += BigInt(byteSize);
      if (!outputs.includes(name)) return undefined;
      const part = { name, datatype, shape: isAlone ? shape : [batchSize, ...shape.slice(1)] };
      const target = targets?.get(name);
      if (target !== undefined && target.byteSize >= byteSize && this.#isHere(target.place)) {
        const { address: to } = target.place;
        copies.push({ to, from: start, byteSize, kind: KIND.onDevice });
        return placedOutput(target, part, byteSize);
      }
      const host = new Uint8Array(new ArrayBuffer(byteSize));
      copies.push({ to: addressOf(host), from: start, byteSize, kind: KIND.toHost, host });
      return { ...part, data: host };
    });
  }

  #isHere(place: DevicePlace | undefined): place is DevicePlace {
    return place?.deviceId === this.#copies.device.deviceId;
  }

  async #reserve(what: string, byteSize: number): Promise<DevicePlace> {
    const { device } = this.#copies;
    let block = this.#scratch.get(what);
    if (block === undefined || block.byteSize < byteSize) {
      if (block !== undefined) {
        this.#scratch.delete(what);
        await device.destroy([block.object]);
      }
      block = { object: await device.allocate(byteSize), byteSize };
      this.#scratch.set(what, block);
    }
    return { deviceId: device.deviceId, address: block.object.address, byteSize };
  }

  /** Makes the copies and waits for them. @throws CudaError; none is under way then. */
  async #run(copies: readonly GpuCopy[]): Promise<void> {
    if (copies.length === 0) return;
    const { device } = this.#copies;
    const { address: stream } = this.#stream ??= await device.createStream();
    const list = new CallList();
    device.begin(list);
    for (const { to, from, byteSize, kind, host } of copies) {
      device.add(list, "cudaMemcpyAsync", [to, from, BigInt(byteSize), kind, stream]);
      if (host !== undefined) list.keep(host);
    }
    device.add(list, "cudaStreamSynchronize", [stream]);
    const failed = await this.#call(list);
    if (failed === undefined) return;
    const rest = new CallList();
    device.begin(rest);
    const address = device.cuda.addresses.cudaStreamSynchronize;
    rest.add("cudaStreamSynchronize", address, { args: [stream], expect: "anything" });
    await this.#call(rest);
    throw device.failure(failed.name, Number(failed.result & 0xffff_ffffn));
  }

  async #call(list: CallList) {
    const { gate } = this.#model;
    const turn = gate.enter();
    if (turn !== undefined) await turn;
    try {
      return await list.run(this.#copies.runner);
    } finally {
      gate.leave();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const objects = [...this.#scratch.values()].map(({ object }) => object);
    if (this.#stream !== undefined) objects.push(this.#stream);
    this.#scratch.clear();
    this.#stream = undefined;
    await this.#copies.device.destroy(objects);
  }
}

const NO_BYTES = new Uint8Array();

function splitHost(output: Tensor, requests: readonly ExecuteRequest[]): readonly Tensor[] {
  if (requests.length === 1) return [output];
  return splitRows(output, requests.map(({ batchSize }) => batchSize));
}

function neverRead(name: string): never {
  throw new TypeError(`Output '${name}' is read before it was shared out`);
}

/** A request with the rows of all; nobody but the instance sees it. */
function standIn(
  inputs: readonly Tensor[],
  outputs: readonly string[],
  requests: readonly ExecuteRequest[],
): ExecuteRequest {
  return {
    id: "",
    correlationId: 0n,
    batchSize: requests.reduce((rows, { batchSize }) => rows + batchSize, 0),
    inputs,
    outputs,
    parameters: {},
    sequenceStart: false,
    sequenceEnd: false,
    priority: 0,
    timeoutUs: 0,
    signal: undefined,
    send: () => {
      throw new TypeError("A batch on the GPU has no responses of its own");
    },
  };
}
