import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";
import type { Clock } from "./clock.ts";

/** What was counted for the whole cache, in one step (observability.md §1.3). Durations are whole microseconds. */
export interface CacheSnapshot {
  readonly entryCount: number;
  readonly lookupCount: number;
  readonly hitCount: number;
  readonly missCount: number;
  readonly evictionCount: number;
  readonly lookupUs: number;
  readonly insertionUs: number;
  /** Used part of the budget, 0 to 1. */
  readonly utilization: number;
}

/** What became of an attempt to insert. */
export type InsertResult = "inserted" | "exists";

/** What a cache works with. */
export interface ResponseCacheOptions {
  /** Budget for everything the cache keeps, bytes. */
  readonly byteSize: number;
  readonly clock: Clock;
  /** More entries are not kept, whatever their size. */
  readonly maxEntryCount?: number;
}

/** A JavaScript map ends at 2²⁴ entries. */
const MAX_ENTRY_COUNT = 2 ** 23;
/** Objects around one entry and its key, measured: entry, map slot, set slot, buffer, digest. */
const ENTRY_BYTES = 640;
/** Objects around one output. */
const OUTPUT_BYTES = 192;
const DIMENSION_BYTES = 8;
/** Every output begins where an array of any datatype may begin. */
const ALIGNMENT_BYTES = 16;

interface Entry {
  readonly key: string;
  readonly partition: CachePartition;
  readonly outputs: readonly Tensor[];
  readonly byteSize: number;
  /** Neighbours in the order of use. */
  newer: Entry | undefined;
  older: Entry | undefined;
}

/**
 * The cache `local` (scheduling.md §7): responses by key within a budget of bytes; what was not used longest goes
 * first. The budget covers the outputs, their names and shapes, the keys and the objects around them.
 */
export class ResponseCache {
  readonly #byteSizeMax: number;
  readonly #maxEntryCount: number;
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();
  #newest: Entry | undefined;
  #oldest: Entry | undefined;
  #byteSize = 0;
  #partitionCount = 0;
  #lookupCount = 0;
  #hitCount = 0;
  #evictionCount = 0;
  #lookupMs = 0;
  #insertionMs = 0;

  constructor(options: ResponseCacheOptions) {
    if (!Number.isSafeInteger(options.byteSize) || options.byteSize <= 0) {
      throw new RangeError(`Budget of ${options.byteSize} bytes is no positive integer`);
    }
    this.#byteSizeMax = options.byteSize;
    this.#maxEntryCount = options.maxEntryCount ?? MAX_ENTRY_COUNT;
    this.#clock = options.clock;
  }

  /** Bytes in use, at most the budget. */
  get byteSize(): number {
    return this.#byteSize;
  }

  /** The place for the entries of one loaded model version, apart from those of every other load. */
  createPartition(): CachePartition {
    return new CachePartition(this, this.#partitionCount++);
  }

  /** The outputs kept under a key; they are shared: nobody may write to them. */
  lookup(key: string): readonly Tensor[] | undefined {
    const startMs = this.#clock.now();
    this.#lookupCount++;
    const entry = this.#entries.get(key);
    if (entry !== undefined) {
      this.#hitCount++;
      if (entry !== this.#newest) {
        this.#unlink(entry);
        this.#linkNewest(entry);
      }
    }
    this.#lookupMs += this.#clock.now() - startMs;
    return entry?.outputs;
  }

  /**
   * Keeps a copy of the outputs; entries not used longest make room.
   * @throws ServerError INTERNAL when they are larger than the whole cache.
   */
  insert(key: string, partition: CachePartition, outputs: readonly Tensor[]): InsertResult {
    const startMs = this.#clock.now();
    try {
      return this.#insert(key, partition, outputs);
    } finally {
      this.#insertionMs += this.#clock.now() - startMs;
    }
  }

  #insert(key: string, partition: CachePartition, outputs: readonly Tensor[]): InsertResult {
    if (this.#entries.has(key)) return "exists";
    const byteSize = entryByteSize(key, outputs);
    if (byteSize > this.#byteSizeMax) {
      throw new ServerError(
        "INTERNAL",
        `Requested byte_size: ${byteSize} is greater than total cache size: ${this.#byteSizeMax}`,
      );
    }
    while (
      this.#byteSize + byteSize > this.#byteSizeMax || this.#entries.size >= this.#maxEntryCount
    ) {
      this.#remove(this.#oldest!);
      this.#evictionCount++;
    }
    const entry: Entry = {
      key,
      partition,
      outputs: copyOutputs(outputs),
      byteSize,
      newer: undefined,
      older: undefined,
    };
    this.#entries.set(key, entry);
    partition.keys.add(key);
    this.#byteSize += byteSize;
    this.#linkNewest(entry);
    return "inserted";
  }

  /** Forgets an entry: it was not evicted for want of room. */
  delete(key: string): void {
    const entry = this.#entries.get(key);
    if (entry !== undefined) this.#remove(entry);
  }

  /** Everything counted, for the metrics. */
  snapshot(): CacheSnapshot {
    return {
      entryCount: this.#entries.size,
      lookupCount: this.#lookupCount,
      hitCount: this.#hitCount,
      missCount: this.#lookupCount - this.#hitCount,
      evictionCount: this.#evictionCount,
      lookupUs: Math.floor(this.#lookupMs * 1000),
      insertionUs: Math.floor(this.#insertionMs * 1000),
      utilization: this.#byteSize / this.#byteSizeMax,
    };
  }

  #remove(entry: Entry): void {
    this.#unlink(entry);
    this.#entries.delete(entry.key);
    entry.partition.keys.delete(entry.key);
    this.#byteSize -= entry.byteSize;
  }

  #linkNewest(entry: Entry): void {
    entry.older = this.#newest;
    if (this.#newest !== undefined) this.#newest.newer = entry;
    this.#newest = entry;
    this.#oldest ??= entry;
  }

  #unlink(entry: Entry): void {
    if (entry.newer === undefined) this.#newest = entry.older;
    else entry.newer.older = entry.older;
    if (entry.older === undefined) this.#oldest = entry.newer;
    else entry.older.newer = entry.newer;
    entry.newer = entry.older = undefined;
  }
}

/** The entries of one loaded model version; made by `ResponseCache.createPartition`. */
export class CachePartition {
  /** Part of every key, so that no other load finds these entries. */
  readonly id: number;
  /** Kept by the cache. */
  readonly keys = new Set<string>();
  readonly #cache: ResponseCache;

  constructor(cache: ResponseCache, id: number) {
    this.#cache = cache;
    this.id = id;
  }

  /** See `ResponseCache.lookup`. */
  lookup(key: string): readonly Tensor[] | undefined {
    return this.#cache.lookup(key);
  }

  /** See `ResponseCache.insert`. */
  insert(key: string, outputs: readonly Tensor[]): InsertResult {
    return this.#cache.insert(key, this, outputs);
  }

  /** Drops every entry: the version was reloaded or unloaded. */
  clear(): void {
    for (const key of this.keys) this.#cache.delete(key);
  }
}

/** What an entry takes from the budget, bytes; a safe integer, since it is a sum of sizes of things in memory. */
function entryByteSize(key: string, outputs: readonly Tensor[]): number {
  let byteSize = ENTRY_BYTES + key.length;
  for (const { name, shape, data } of outputs) {
    byteSize += OUTPUT_BYTES + 2 * name.length + DIMENSION_BYTES * shape.length +
      align(data.byteLength);
  }
  return byteSize;
}

/** All outputs in one new buffer: the originals may lie in pooled memory or in the request. */
function copyOutputs(outputs: readonly Tensor[]): Tensor[] {
  const byteSize = outputs.reduce((sum, { data }) => sum + align(data.byteLength), 0);
  const buffer = new ArrayBuffer(byteSize);
  let offset = 0;
  return outputs.map(({ name, datatype, shape, data }) => {
    const copy = new Uint8Array(buffer, offset, data.byteLength);
    copy.set(data);
    offset += align(data.byteLength);
    return { name, datatype, shape: [...shape], data: copy };
  });
}

function align(byteSize: number): number {
  return Math.ceil(byteSize / ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
}
