import type { InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type { DevicePlace } from "../../proto/tensor.ts";
import type { ClientMemory } from "./client_memory.ts";
import type {
  CudaSharedMemoryRegion,
  SharedMemoryKind,
  SharedMemoryRegion,
  SystemSharedMemoryRegion,
} from "./inference_api.ts";
import type { ServerOptions } from "./options.ts";
import { bindRequest, type BoundRequest, type CopyBudget } from "./shared_memory_request.ts";

/** Memory of another process that was opened for one region. Offsets are inside the region, never checked here. */
export interface OpenRegion {
  /** The bytes by reference; undefined when they can only be copied (device memory). */
  view(offset: number, byteSize: number): Uint8Array | undefined;
  /** The bytes, copied. */
  copy(offset: number, byteSize: number): Uint8Array;
  /** Overwrites bytes. */
  write(data: Uint8Array, offset: number): void;
  /** @throws ServerError when bytes were gone while they were read or written. */
  checkWhole(): void;
  /** Whether `data` is a view of this region. */
  holds(data: Uint8Array): boolean;
  /** Where the bytes lie on a GPU; absent or undefined = in memory of this machine. */
  place?(offset: number, byteSize: number): DevicePlace | undefined;
  /** Gives the memory back; views become empty. */
  close(): void;
}

/**
 * Opens memory of other processes; given by the process that hosts the server, since the core has no native code.
 * What they and the regions throw as ServerError reaches the client behind `failed to register shared memory region`.
 */
export interface RegionOpener {
  /** Most regions that may be open at the same time. */
  readonly maxRegions: number;
  /** @throws ServerError NOT_FOUND when there is no such object, INVALID_ARG when it is too small. */
  openSystem(key: string, offset: number, byteSize: number): Promise<OpenRegion>;
  /** @throws ServerError UNSUPPORTED without a GPU, INVALID_ARG for a wrong handle, device or size. */
  openCuda(rawHandle: Uint8Array, deviceId: number, byteSize: number): Promise<OpenRegion>;
}

/** A model, as far as regions matter. */
export interface MemoryUser {
  /** Which memory of clients its instances work on where it is. */
  clientMemory(): ClientMemory | undefined;
}

/** How regions may be registered. */
export interface SharedMemoryRules {
  /** `--allow-client-shm`. */
  readonly isAllowed: boolean;
  /** `--client-shm-key-prefix`; empty = every key may be registered. */
  readonly allowedKeyPrefixes: readonly string[];
  /** Prefixes of the keys of the server's own regions, which nobody may register. */
  readonly reservedKeyPrefixes: readonly string[];
}

/** A region as requests use it. */
export class RegisteredRegion {
  readonly description: SharedMemoryRegion;
  readonly memory: OpenRegion;
  readonly #onClosed: (region: RegisteredRegion) => void;
  #useCount = 0;
  #isUnregistered = false;

  constructor(
    description: SharedMemoryRegion,
    memory: OpenRegion,
    onClosed: (region: RegisteredRegion) => void,
  ) {
    this.description = description;
    this.memory = memory;
    this.#onClosed = onClosed;
  }

  /** Whether it only waits for requests in flight. */
  get isUnregistered(): boolean {
    return this.#isUnregistered;
  }

  /** Keeps the memory until `leave`, whatever is unregistered meanwhile. */
  enter(): void {
    this.#useCount++;
  }

  leave(): void {
    if (--this.#useCount === 0 && this.#isUnregistered) this.#close();
  }

  /** It goes now, or with the last request that uses it; until then others find it as well, as in the reference. */
  unregister(): void {
    if (this.#isUnregistered) return;
    this.#isUnregistered = true;
    if (this.#useCount === 0) this.#close();
  }

  #close(): void {
    this.memory.close();
    this.#onClosed(this);
  }
}

/** The prefix of the regions of the reference's Python backend, which its clients know. */
export const PYTHON_REGION_PREFIX = "triton_python_backend_shm_region_";

const MAX_NAME_LENGTH = 1024;
/** Longest name of a file, less the slash in front. */
const MAX_KEY_BYTES = 255;
const HANDLE_BYTE_SIZE = 64;
const MAX_COPIED_BYTE_SIZE = 2 * 1024 ** 3;
const MAX_INT32 = 2147483647n;

/** The regions that clients have registered, by name; one name space for both kinds (http.md §6). */
export class SharedMemoryTable {
  readonly #rules: SharedMemoryRules;
  readonly #opener: RegionOpener;
  readonly #regions = new Map<string, RegisteredRegion>();
  /** Names of regions that are being opened; `false` once the region was unregistered meanwhile. */
  readonly #opening = new Map<string, { isWanted: boolean; readonly kind: SharedMemoryKind }>();
  readonly #copies: CopyBudget = { usedByteSize: 0, maxByteSize: MAX_COPIED_BYTE_SIZE };
  /** Regions whose memory is open, with those that only wait for their end. */
  #openCount = 0;
  #isClosed = false;

  constructor(rules: SharedMemoryRules, opener: RegionOpener) {
    this.#rules = rules;
    this.#opener = opener;
  }

  /** @throws ServerError UNSUPPORTED unless clients may use shared memory. */
  checkAllowed(): void {
    if (this.#isClosed) throw new ServerError("UNAVAILABLE", "Server exiting");
    if (this.#rules.isAllowed) return;
    throw new ServerError(
      "UNSUPPORTED",
      "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
    );
  }

  /** @throws ServerError with the texts of http.md §6. */
  async registerSystem(region: SystemSharedMemoryRegion): Promise<void> {
    const { name, key, offset, byteSize } = region;
    this.checkAllowed();
    this.#checkName(name, "system");
    this.#checkKey(name, key);
    if (byteSize === 0n || !isSafe(offset + byteSize)) throw invalidArgs(name);
    const open = () => this.#opener.openSystem(key, Number(offset), Number(byteSize));
    await this.#register(region, open);
  }

  /** @throws ServerError with the texts of http.md §6. */
  async registerCuda(region: CudaSharedMemoryRegion, rawHandle: Uint8Array): Promise<void> {
    const { name, deviceId, byteSize } = region;
    this.checkAllowed();
    this.#checkName(name, "cuda");
    const prefix = `failed to register CUDA shared memory region: '${name}', `;
    if (rawHandle.byteLength !== HANDLE_BYTE_SIZE) {
      const size = rawHandle.byteLength;
      throw invalid(`${prefix}raw handle has ${size} bytes, expected ${HANDLE_BYTE_SIZE}`);
    }
    if (byteSize === 0n || !isSafe(byteSize)) {
      throw invalid(`${prefix}byte size ${byteSize} is not possible`);
    }
    if (deviceId < 0n || deviceId > MAX_INT32) {
      throw invalid(`${prefix}there is no device ${deviceId}`);
    }
    // The caller's bytes may be reused while the region is being opened.
    const handle = rawHandle.slice();
    const open = () => this.#opener.openCuda(handle, Number(deviceId), Number(byteSize));
    await this.#register(region, open);
  }

  /** The regions of a kind, or the one of a name. @throws ServerError NOT_FOUND. */
  status(kind: SharedMemoryKind, name: string): SharedMemoryRegion[] {
    if (name === "") {
      const all = [...this.#regions.values()].map(({ description }) => description);
      return all.filter((region) => region.kind === kind);
    }
    const region = this.#regions.get(name)?.description;
    if (region === undefined) {
      throw new ServerError("NOT_FOUND", `Unable to find ${kind} shared memory region: '${name}'`);
    }
    if (region.kind === kind) return [region];
    throw new ServerError(
      "NOT_FOUND",
      `The region named '${name}' is registered as ${label(region.kind)} shared memory, not ` +
        `${label(kind)} shared memory`,
    );
  }

  /**
   * Forgets the region of a name, or with "" all of a kind; one that is not there is no fault. Requests in flight
   * keep the memory until they are done.
   */
  unregister(kind: SharedMemoryKind, name: string): void {
    this.checkAllowed();
    const names = name === "" ? [...this.#regions.keys(), ...this.#opening.keys()] : [name];
    for (const each of names) this.#unregister(kind, each);
  }

  #unregister(kind: SharedMemoryKind, name: string): void {
    const opening = this.#opening.get(name);
    if (opening?.kind === kind) opening.isWanted = false;
    const region = this.#regions.get(name);
    if (region?.description.kind === kind) region.unregister();
  }

  /** A region that is unregistered while it is used stays in the list until it is not; its name may be taken before. */
  #forget(region: RegisteredRegion): void {
    this.#openCount--;
    const { name } = region.description;
    if (this.#regions.get(name) === region) this.#regions.delete(name);
  }

  /**
   * The request with its inputs taken from their regions, which are held until `release`; undefined when it uses no
   * shared memory. What the model works on where it is stays there.
   * @throws ServerError for an unknown region or a part outside of it.
   */
  bind(request: InferRequest, model: MemoryUser): BoundRequest | undefined {
    return bindRequest(request, { regions: this.#regions, copies: this.#copies, model });
  }

  /** Unregisters everything and refuses what comes later. */
  close(): void {
    this.#isClosed = true;
    for (const opening of this.#opening.values()) opening.isWanted = false;
    for (const region of [...this.#regions.values()]) region.unregister();
  }

  async #register(description: SharedMemoryRegion, open: () => Promise<OpenRegion>): Promise<void> {
    const { name, kind } = description;
    const { maxRegions } = this.#opener;
    if (this.#openCount + this.#opening.size >= maxRegions) {
      throw new ServerError(
        "UNAVAILABLE",
        `failed to register shared memory region '${name}': there are ${maxRegions} regions, ` +
          `the most allowed`,
      );
    }
    const opening = { isWanted: true, kind };
    this.#opening.set(name, opening);
    try {
      const memory = await open();
      // Whoever unregisters while it is being opened wants it gone, not back a moment later.
      if (!opening.isWanted) return memory.close();
      const region = new RegisteredRegion(description, memory, (each) => this.#forget(each));
      this.#regions.set(name, region);
      this.#openCount++;
    } catch (error) {
      throw registerError(description, error);
    } finally {
      this.#opening.delete(name);
    }
  }

  #checkName(name: string, kind: SharedMemoryKind): void {
    if (name === "") {
      throw invalid(`'region name' is necessary to register ${kind} shared memory region`);
    }
    if (name.length > MAX_NAME_LENGTH) {
      throw invalid(
        `cannot register shared memory region: its name has ${name.length} characters, at most ` +
          `${MAX_NAME_LENGTH} are allowed`,
      );
    }
    const isTaken = this.#regions.get(name)?.isUnregistered === false || this.#opening.has(name);
    if (!isTaken) return;
    throw new ServerError("ALREADY_EXISTS", `shared memory region '${name}' already in manager`);
  }

  #checkKey(name: string, key: string): void {
    const file = key.replace(/^\/+/, "");
    const place = `cannot register shared memory region '${name}'`;
    // With a slash inside, shm_open would look in another folder.
    const isName = file !== "" && file !== "." && file !== ".." && !/[/\0]/.test(file);
    if (!isName || new TextEncoder().encode(file).byteLength > MAX_KEY_BYTES) {
      throw invalid(`${place} - invalid shm key '${key}'`);
    }
    if (file.startsWith(PYTHON_REGION_PREFIX)) {
      throw invalid(
        `${place} with key '${key}' as the key contains the reserved prefix '${PYTHON_REGION_PREFIX}'`,
      );
    }
    // Other prefixes are the server's own business: the text does not repeat them.
    if (this.#rules.reservedKeyPrefixes.some((prefix) => file.startsWith(prefix))) {
      throw invalid(`${place} with key '${key}' as the key contains a reserved prefix`);
    }
    const allowed = this.#rules.allowedKeyPrefixes;
    if (allowed.length > 0 && !allowed.some((prefix) => file.startsWith(prefix))) {
      throw invalid(
        `${place} with key '${key}' as this server takes only keys of --client-shm-key-prefix`,
      );
    }
  }
}

/** The table of a server; without an opener every registration is refused. */
export function createSharedMemoryTable(
  options: ServerOptions,
  opener: RegionOpener | undefined,
): SharedMemoryTable {
  const prefix = options.backendConfig.get("python")?.get("shm-region-prefix-name");
  const rules = {
    isAllowed: options.allowClientSharedMemory,
    allowedKeyPrefixes: options.sharedMemoryKeyPrefixes,
    reservedKeyPrefixes: prefix === undefined ? [] : [prefix],
  };
  return new SharedMemoryTable(rules, opener ?? NO_OPENER);
}

function refuse(): Promise<never> {
  const text = "shared memory cannot be opened in this process";
  return Promise.reject(new ServerError("UNSUPPORTED", text));
}

const NO_OPENER: RegionOpener = { maxRegions: 1, openSystem: refuse, openCuda: refuse };

function registerError({ name, kind, ...rest }: SharedMemoryRegion, reason: unknown): ServerError {
  const { code, message } = ServerError.from(reason);
  if (kind === "cuda") {
    return new ServerError(
      // A server without a GPU says that the request is at fault (http.md §6).
      code === "UNSUPPORTED" ? "INVALID_ARG" : code,
      `failed to register CUDA shared memory region: '${name}', ${message}`,
      { cause: reason },
    );
  }
  if (code === "NOT_FOUND" && "key" in rest) {
    const text = `Unable to open shared memory region: '${rest.key}'`;
    return new ServerError("INTERNAL", text, { cause: reason });
  }
  const text = `failed to register shared memory region '${name}': ${message}`;
  return new ServerError(code, text, { cause: reason });
}

function invalid(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}

function invalidArgs(name: string): ServerError {
  return invalid(`failed to register shared memory region '${name}': invalid args`);
}

function isSafe(size: bigint): boolean {
  return size <= BigInt(Number.MAX_SAFE_INTEGER);
}

function label(kind: SharedMemoryKind): string {
  return kind === "cuda" ? "CUDA" : kind;
}
