import type {
  InferInput,
  InferOutput,
  InferRequest,
  InferResponse,
  RequestedOutput,
  SharedMemoryReference,
} from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { byteSizeOf, createDeviceTensor, tensorByteSize } from "../../proto/tensor.ts";
import { isPlaced, type OutputTargets } from "../../backends/backend.ts";
import type { ClientMemory } from "./client_memory.ts";
import type { ResponseReceiver, StreamedResponse } from "./inference_api.ts";
import { requestPrefix } from "./scheduler/job.ts";
import type { MemoryUser, RegisteredRegion } from "./shared_memory.ts";
import { findTargets, type RegionPart } from "./shared_memory_targets.ts";

/** What copies of inputs may take together, since a request of a few bytes may ask for large ones. */
export interface CopyBudget {
  usedByteSize: number;
  readonly maxByteSize: number;
}

/** Where a request finds its regions. */
export interface BindContext {
  readonly regions: ReadonlyMap<string, RegisteredRegion>;
  readonly copies: CopyBudget;
  /** The model that is to run it. */
  readonly model: MemoryUser;
}

/** What frees the buffers behind a response. */
export type ResponseReleases = WeakMap<InferResponse, () => void>;

const NO_BYTES = new Uint8Array();

/**
 * Takes the inputs that lie in shared memory from there, and finds where outputs go (http.md §6).
 * @returns undefined when the request uses no shared memory.
 * @throws ServerError NOT_FOUND for an unknown region, INVALID_ARG for a part outside of it.
 */
export function bindRequest(
  request: InferRequest,
  context: BindContext,
): BoundRequest | undefined {
  if (!usesSharedMemory(request)) return undefined;
  const bound = new BoundRequest(request, context);
  try {
    bound.open();
    return bound;
  } catch (error) {
    bound.release();
    throw error;
  }
}

function usesSharedMemory({ inputs, outputs }: InferRequest): boolean {
  for (const { sharedMemory } of inputs) if (sharedMemory !== undefined) return true;
  for (const { sharedMemory } of outputs) if (sharedMemory !== undefined) return true;
  return false;
}

/** A request whose regions are held until {@linkcode release}. */
export class BoundRequest {
  readonly #given: InferRequest;
  readonly #context: BindContext;
  readonly #held = new Set<RegisteredRegion>();
  readonly #places = new Map<string, RegionPart>();
  readonly #sources: RegionPart[] = [];
  readonly #memory: ClientMemory | undefined;
  #request: InferRequest;
  #targets: OutputTargets | undefined;
  #copiedByteSize = 0;
  #isReleased = false;

  constructor(request: InferRequest, context: BindContext) {
    this.#given = this.#request = request;
    this.#context = context;
    this.#memory = context.model.clientMemory();
  }

  /** The request as a model takes it: all inputs with their bytes, or the place of them that the model can reach. */
  get request(): InferRequest {
    return this.#request;
  }

  /** Where instances may write outputs themselves. */
  get targets(): OutputTargets | undefined {
    return this.#targets;
  }

  /** Takes the inputs and finds the places of the outputs. Call it once. */
  open(): void {
    const inputs = this.#given.inputs.map((input) => this.#openInput(input));
    const outputs = this.#given.outputs.map((output) => this.#openOutput(output));
    this.#request = { ...this.#given, inputs, outputs };
    if (this.#places.size === 0 || this.#memory === undefined) return;
    const use = {
      inputs: this.#sources,
      outputs: this.#places,
      view: viewOf,
      copy: (part: RegionPart, byteSize: number) => this.#copy(part, byteSize),
    };
    this.#targets = findTargets(use, this.#memory);
  }

  #openInput(input: InferInput): InferInput {
    const { sharedMemory } = input;
    if (sharedMemory === undefined) return input;
    const { name, datatype, shape } = input;
    const region = this.#find(sharedMemory);
    const { offset, byteSize } = sharedMemory;
    if (byteSize === 0) return { name, datatype, shape, data: NO_BYTES };
    const part = { region, reference: sharedMemory };
    this.#sources.push(part);
    const copy = (): Uint8Array => {
      this.#checkCopy(input, byteSize);
      return this.#copy(part, byteSize);
    };
    // The lengths inside BYTES are checked once and read later: nobody may change them in between.
    if (datatype === "BYTES") return { name, datatype, shape, data: copy() };
    const place = region.memory.place?.(offset, byteSize);
    if (place !== undefined && this.#memory?.cudaDeviceIds.has(place.deviceId)) {
      return createDeviceTensor(input, place, copy);
    }
    return { name, datatype, shape, data: viewOf(part) ?? copy() };
  }

  #copy({ region, reference: { offset } }: RegionPart, byteSize: number): Uint8Array {
    if (this.#isReleased) throw new TypeError("A region is read after the end of the request");
    return access(region, () => region.memory.copy(offset, byteSize));
  }

  /** Checks a size before memory is taken for it, which the model's own check comes too late for. */
  #checkCopy({ name, datatype, shape }: InferInput, byteSize: number): void {
    const { id, modelName } = this.#given;
    const expected = tensorByteSize(datatype, shape, `input '${name}'`);
    if (expected !== undefined && expected !== byteSize) {
      throw new ServerError(
        "INVALID_ARG",
        `${requestPrefix(id)}input byte size mismatch for input '${name}' for model ` +
          `'${modelName}'. Expected ${expected}, got ${byteSize}`,
      );
    }
    const { copies } = this.#context;
    if (copies.usedByteSize + byteSize > copies.maxByteSize) {
      throw new ServerError(
        "UNAVAILABLE",
        `${requestPrefix(id)}input '${name}' of ${byteSize} bytes cannot be copied from shared ` +
          `memory now: requests in flight hold ${copies.usedByteSize} of at most ` +
          `${copies.maxByteSize} bytes`,
      );
    }
    copies.usedByteSize += byteSize;
    this.#copiedByteSize += byteSize;
  }

  #openOutput(output: RequestedOutput): RequestedOutput {
    const { sharedMemory, ...rest } = output;
    if (sharedMemory === undefined) return output;
    this.#places.set(output.name, { region: this.#find(sharedMemory), reference: sharedMemory });
    return rest;
  }

  /** Finds a region, checks the part of it, and holds it. */
  #find({ region: name, offset, byteSize }: SharedMemoryReference): RegisteredRegion {
    const region = this.#context.regions.get(name);
    if (region === undefined) {
      throw new ServerError("NOT_FOUND", `Unable to find shared memory region: '${name}'`);
    }
    const regionByteSize = Number(region.description.byteSize);
    if (offset >= regionByteSize) {
      throw new ServerError("INVALID_ARG", `Invalid offset for shared memory region: '${name}'`);
    }
    if (byteSize > Number.MAX_SAFE_INTEGER - offset) {
      throw new ServerError(
        "INVALID_ARG",
        `Integer overflow detected: byte_size (${byteSize}) + offset (${offset}) exceeds maximum ` +
          `value (${Number.MAX_SAFE_INTEGER}) for region '${name}'`,
      );
    }
    if (offset + byteSize > regionByteSize) {
      throw new ServerError(
        "INVALID_ARG",
        `Invalid offset + byte size for shared memory region: '${name}'`,
      );
    }
    if (!this.#held.has(region)) {
      this.#held.add(region);
      region.enter();
    }
    return region;
  }

  /**
   * Runs the request and holds the regions meanwhile. What `run` throws at once is thrown on.
   * @param releases what frees the buffers behind a response.
   */
  settle(
    run: (request: InferRequest) => Promise<InferResponse>,
    releases: ResponseReleases,
  ): Promise<InferResponse> {
    return this.hold((request) =>
      run(request).then((response) => this.convert(response, releases))
    );
  }

  /** Holds the regions until `run` is over. What it throws at once is thrown on. */
  hold<Value>(run: (request: InferRequest) => Promise<Value>): Promise<Value> {
    let running: Promise<Value>;
    try {
      running = run(this.#request);
    } catch (error) {
      this.release();
      throw error;
    }
    return running.finally(() => this.release());
  }

  /** A receiver for the model's messages that passes on the client's. */
  receive(receive: ResponseReceiver, releases: ResponseReleases): ResponseReceiver {
    return (message) => {
      const { response, isFinal } = message;
      if (response === undefined) return receive(message);
      let converted: StreamedResponse;
      try {
        converted = { response: this.convert(response, releases), isFinal };
      } catch (error) {
        converted = { error: ServerError.from(error), isFinal };
      }
      return receive(converted);
    };
  }

  /** `finish`, and the buffers of the model are freed as soon as nothing is in them any more. */
  convert(response: InferResponse, releases: ResponseReleases): InferResponse {
    const release = releases.get(response);
    releases.delete(response);
    try {
      const converted = this.finish(response);
      if (release === undefined) return converted;
      const isNeeded = converted.outputs.some(({ data }, index) =>
        data !== NO_BYTES && data === response.outputs[index]!.data
      );
      if (isNeeded) releases.set(converted, release);
      else release();
      return converted;
    } catch (error) {
      release?.();
      throw error;
    }
  }

  /**
   * Writes the outputs that were asked for there into their regions.
   * @returns the response without their bytes, and without views of regions, which do not outlive the request.
   * @throws ServerError INTERNAL when a place is too small, INVALID_ARG when a region was cut meanwhile.
   */
  finish(response: InferResponse): InferResponse {
    const outputs = response.outputs.map((output) => this.#finishOutput(output));
    // What the model made of an input that was cut under its hands is worth nothing.
    for (const region of this.#held) access(region, () => region.memory.checkWhole());
    return { ...response, outputs };
  }

  #finishOutput(output: InferOutput): InferOutput {
    const place = this.#places.get(output.name);
    if (place === undefined) {
      if (!this.#isShared(output.data)) return output;
      return { ...output, data: output.data.slice() };
    }
    const { region, reference } = place;
    const { name, datatype, shape } = output;
    const byteSize = byteSizeOf(output);
    if (byteSize > reference.byteSize) {
      throw new ServerError(
        "INTERNAL",
        `shared memory size specified with the request for output '${name}' ` +
          `(${reference.byteSize} bytes) should be at least ${byteSize} bytes to hold the results`,
      );
    }
    const target = this.#targets?.get(name);
    const isThere = target !== undefined && isPlaced(output, target);
    if (byteSize > 0 && !isThere) {
      access(region, () => region.memory.write(output.data, reference.offset));
    }
    return { name, datatype, shape, data: NO_BYTES, sharedMemory: reference };
  }

  /** Whether the bytes are those of a region: a model may answer with views of its inputs. */
  #isShared(data: Uint8Array): boolean {
    for (const { memory } of this.#held) if (memory.holds(data)) return true;
    return false;
  }

  /** Lets go of the regions; neither inputs nor `finish` may be used any more. */
  release(): void {
    for (const region of this.#held) region.leave();
    this.#held.clear();
    this.#isReleased = true;
    this.#context.copies.usedByteSize -= this.#copiedByteSize;
    this.#copiedByteSize = 0;
  }
}

/** Names the region in what its memory throws. */
function viewOf({ region, reference: { offset, byteSize } }: RegionPart): Uint8Array | undefined {
  return access(region, () => region.memory.view(offset, byteSize));
}

function access<Value>({ description }: RegisteredRegion, use: () => Value): Value {
  try {
    return use();
  } catch (reason) {
    const { code, message } = ServerError.from(reason);
    throw new ServerError(
      code,
      `Unable to use shared memory region: '${description.name}': ${message}`,
      { cause: reason },
    );
  }
}
