import { countDevices } from "../ffi/cuda/device.ts";
import { IpcMemory } from "../ffi/cuda/memory.ts";
import { type CudaLibraries, openCudaLibraries } from "../ffi/cuda/symbols.ts";
import { LibraryNotFoundError } from "../ffi/library.ts";
import { FFI_REFUSAL, isFfiAllowed } from "../ffi/permission.ts";
import {
  PosixError,
  type SharedMemoryMapping,
  SharedMemoryObject,
} from "../ffi/posix/shared_memory.ts";
import { ServerError } from "../proto/status.ts";
import type { DevicePlace } from "../proto/tensor.ts";

/** How regions are used. */
export interface RegionOptions {
  /**
   * Copy inputs out of regions, and outputs into them, instead of working there. It costs time, and in exchange nothing that
   * another process does to its memory while a request runs can change what the model sees, or end the server.
   */
  readonly copiesInputs: boolean;
}

const MAX_REGIONS = 8192;
/** What systems allow at least. */
const LEAST_FILE_LIMIT = 256;
const TOO_MANY_FILES = [23, 24];

/** Opens the memory behind shared memory regions: `RegionOpener` of server/core/shared_memory.ts. */
export class MemoryOpener {
  /** Each region keeps a file open: connections must find some left. */
  readonly maxRegions: number = Math.min(MAX_REGIONS, Math.floor(openFileLimit() / 4));
  readonly #options: RegionOptions;
  /** Looked for at the first use. */
  #cuda: CudaLibraries | "none" | undefined;

  constructor(options: RegionOptions) {
    this.#options = options;
  }

  /**
   * Opens a part of a POSIX shared memory object.
   * @throws ServerError NOT_FOUND when it cannot be opened, INVALID_ARG when it is too small, UNAVAILABLE when the
   * system has no memory for it, UNSUPPORTED on systems without shared memory.
   */
  async openSystem(key: string, offset: number, byteSize: number): Promise<SystemRegion> {
    const object = openObject(key);
    try {
      checkSize(object, offset + byteSize);
      await object.reserve(offset, byteSize);
      const mapping = this.#options.copiesInputs ? undefined : object.map(offset, byteSize);
      return new SystemRegion(object, offset, mapping);
    } catch (error) {
      object[Symbol.dispose]();
      if (!(error instanceof PosixError)) throw error;
      throw new ServerError("UNAVAILABLE", `cannot map its memory: ${error.message}`, {
        cause: error,
      });
    }
  }

  /**
   * Opens GPU memory of another process.
   * @throws ServerError UNSUPPORTED without a GPU, INVALID_ARG for a wrong handle, device or size.
   */
  // deno-lint-ignore require-await
  async openCuda(
    rawHandle: Uint8Array,
    deviceId: number,
    byteSize: number,
  ): Promise<CudaRegion> {
    const libraries = this.#cuda ??= findCuda();
    if (libraries === "none") throw new ServerError("UNSUPPORTED", "GPUs not supported");
    const deviceCount = countDevices(libraries.runtime);
    if (deviceId >= deviceCount) {
      throw new ServerError(
        "INVALID_ARG",
        `there is no device ${deviceId}, this machine has ${deviceCount}`,
      );
    }
    let memory: IpcMemory;
    try {
      memory = IpcMemory.open(libraries, new Uint8Array(rawHandle), deviceId);
    } catch (error) {
      throw ServerError.from(error, "INVALID_ARG");
    }
    if (memory.byteSize >= byteSize) return new CudaRegion(memory, this.#options);
    memory[Symbol.dispose]();
    throw new ServerError(
      "INVALID_ARG",
      `invalid args (its allocation has ${memory.byteSize} bytes, byte_size is ${byteSize})`,
    );
  }
}

/** Number of files this process may have open. */
function openFileLimit(): number {
  try {
    const limits = Deno.readTextFileSync("/proc/self/limits");
    const limit = /^Max open files +(\d+|unlimited)/m.exec(limits)?.[1];
    return limit === "unlimited" ? Infinity : Number(limit ?? LEAST_FILE_LIMIT);
  } catch {
    return LEAST_FILE_LIMIT;
  }
}

function findCuda(): CudaLibraries | "none" {
  for (const libraries of openCudaLibraries()) {
    if (countDevices(libraries.runtime) > 0) return libraries;
  }
  return "none";
}

function openObject(key: string): SharedMemoryObject {
  try {
    return SharedMemoryObject.open(key);
  } catch (error) {
    if (error instanceof PosixError && TOO_MANY_FILES.includes(error.errno)) {
      throw new ServerError("UNAVAILABLE", "too many files are open", { cause: error });
    }
    const isSystem = error instanceof LibraryNotFoundError;
    const why = isFfiAllowed() ? "this system has no POSIX shared memory" : FFI_REFUSAL;
    const text = isSystem ? why : "it cannot be opened";
    throw new ServerError(isSystem ? "UNSUPPORTED" : "NOT_FOUND", text, { cause: error });
  }
}

/** @throws ServerError INVALID_ARG when the object ends before `end`. */
function checkSize(object: SharedMemoryObject, end: number): void {
  let byteSize = 0;
  try {
    byteSize = object.byteSize;
  } catch (error) {
    // A pipe or the like, which has no bytes to map.
    if (!(error instanceof PosixError)) throw error;
  }
  if (end <= byteSize) return;
  throw new ServerError(
    "INVALID_ARG",
    `invalid args (its shared memory object has ${byteSize} bytes, ${end} are needed)`,
  );
}

/** A region in a POSIX shared memory object. */
class SystemRegion {
  readonly #object: SharedMemoryObject;
  readonly #offset: number;
  readonly #mapping: SharedMemoryMapping | undefined;

  constructor(
    object: SharedMemoryObject,
    offset: number,
    mapping: SharedMemoryMapping | undefined,
  ) {
    this.#object = object;
    this.#offset = offset;
    this.#mapping = mapping;
  }

  view(offset: number, byteSize: number): Uint8Array<ArrayBuffer> | undefined {
    if (this.#mapping === undefined) return undefined;
    this.#check(offset + byteSize);
    return this.#mapping.bytes.subarray(offset, offset + byteSize);
  }

  copy(offset: number, byteSize: number): Uint8Array<ArrayBuffer> {
    this.#check(offset + byteSize);
    const copy = new Uint8Array(byteSize);
    if (this.#object.read(copy, this.#offset + offset) === byteSize) return copy;
    throw new ServerError("INVALID_ARG", "its shared memory object was made smaller");
  }

  write(data: Uint8Array, offset: number): void {
    this.#check(offset + data.byteLength);
    if (this.#mapping === undefined) {
      const written = data as Uint8Array<ArrayBuffer>;
      this.#object.write(written, this.#offset + offset);
      return;
    }
    this.#mapping.bytes.set(data, offset);
    this.checkWhole();
  }

  checkWhole(): void {
    if (this.#mapping?.isWhole ?? true) return;
    throw new ServerError(
      "INVALID_ARG",
      "its shared memory object was made smaller during a request; it must be registered again",
    );
  }

  /** Its owner may make the object smaller at any time; to touch a page behind its end may end the process. */
  #check(end: number): void {
    this.checkWhole();
    checkSize(this.#object, this.#offset + end);
  }

  holds(data: Uint8Array): boolean {
    return this.#mapping?.holds(data) ?? false;
  }

  close(): void {
    this.#mapping?.[Symbol.dispose]();
    this.#object[Symbol.dispose]();
  }
}

/** A region in the memory of a GPU; models that do not run on it get copies. */
class CudaRegion {
  readonly #memory: IpcMemory;
  readonly #options: RegionOptions;

  constructor(memory: IpcMemory, options: RegionOptions) {
    this.#memory = memory;
    this.#options = options;
  }

  view(): undefined {
    return undefined;
  }

  copy(offset: number, byteSize: number): Uint8Array<ArrayBuffer> {
    const copy = new Uint8Array(byteSize);
    this.#memory.read(copy, offset);
    return copy;
  }

  place(offset: number, byteSize: number): DevicePlace | undefined {
    if (this.#options.copiesInputs) return undefined;
    const { deviceId, address } = this.#memory;
    return { deviceId, address: address + BigInt(offset), byteSize };
  }

  checkWhole(): void {}

  write(data: Uint8Array, offset: number): void {
    this.#memory.write(data as Uint8Array<ArrayBuffer>, offset);
  }

  holds(): boolean {
    return false;
  }

  close(): void {
    this.#memory[Symbol.dispose]();
  }
}
