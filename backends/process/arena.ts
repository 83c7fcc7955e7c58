/** Slots begin at multiples of this, which suits every datatype and vector register. */
const ALIGNMENT = 64;

/** Shared memory of this process that others can open by its number. */
export interface ArenaSegment extends Disposable {
  readonly fd: number;
  readonly bytes: Uint8Array;
}

/** Where a tensor can be put. */
export interface Slot {
  /** Number of the segment. */
  readonly segment: number;
  readonly offset: number;
  readonly bytes: Uint8Array;
}

interface Segment {
  readonly memory: ArenaSegment;
  /** Bytes of the slots in use, by their offsets. */
  readonly used: Map<number, number>;
  /** Offsets of free slots by their size. */
  readonly free: Map<number, number[]>;
  /** End of the part that was ever divided into slots. */
  top: number;
}

/** How an arena gets its memory. */
export interface ArenaParts {
  readonly createSegment: (byteSize: number) => ArenaSegment;
  /** Bytes of the first segment, the least by which the arena grows, and what it has at most. */
  readonly initialByteSize: number;
  readonly growthByteSize: number;
  readonly maxByteSize: number;
}

/**
 * Memory for tensors on their way to another process: slots in a few segments, in sizes of four steps per power of two,
 * so that a free slot soon fits again. Segments grow with what is there already; their number stays small.
 */
export class Arena implements Disposable {
  readonly #parts: ArenaParts;
  readonly #segments: Segment[] = [];
  #byteSize = 0;
  #usedCount = 0;

  constructor(parts: ArenaParts) {
    this.#parts = parts;
  }

  /** Slots in use. */
  get usedCount(): number {
    return this.#usedCount;
  }

  /** Bytes of all segments. */
  get byteSize(): number {
    return this.#byteSize;
  }

  /** Number of the first segment, which is made if there is none. @throws what making it throws. */
  open(): number {
    const first = this.#segments[0] ?? this.#grow(this.#parts.initialByteSize);
    return first.memory.fd;
  }

  /** A slot of so many bytes (> 0), undefined when the arena may not grow so far or the system has no more. */
  tryAllocate(byteSize: number): Slot | undefined {
    const slotByteSize = slotSize(byteSize);
    for (const segment of this.#segments) {
      const offset = takeSlot(segment, slotByteSize);
      if (offset !== undefined) return this.#use(segment, offset, { byteSize, slotByteSize });
    }
    const segment = this.#tryGrow(slotByteSize);
    if (segment === undefined) return undefined;
    segment.top = slotByteSize;
    return this.#use(segment, 0, { byteSize, slotByteSize });
  }

  /** Gives a slot back. @throws RangeError when it is not in use. */
  free(segmentNumber: number, offset: number): void {
    const segment = this.#segments.find(({ memory }) => memory.fd === segmentNumber);
    const slotByteSize = segment?.used.get(offset);
    if (segment === undefined || slotByteSize === undefined) {
      throw new RangeError(`Slot ${segmentNumber}:${offset} is not in use`);
    }
    this.#usedCount--;
    segment.used.delete(offset);
    if (segment.used.size === 0) {
      // Slots of any size fit again.
      segment.free.clear();
      segment.top = 0;
      return;
    }
    const free = segment.free.get(slotByteSize);
    if (free === undefined) segment.free.set(slotByteSize, [offset]);
    else free.push(offset);
  }

  #use(
    segment: Segment,
    offset: number,
    { byteSize, slotByteSize }: { readonly byteSize: number; readonly slotByteSize: number },
  ): Slot {
    segment.used.set(offset, slotByteSize);
    this.#usedCount++;
    const bytes = segment.memory.bytes.subarray(offset, offset + byteSize);
    return { segment: segment.memory.fd, offset, bytes };
  }

  #tryGrow(slotByteSize: number): Segment | undefined {
    const { growthByteSize, maxByteSize } = this.#parts;
    const room = maxByteSize - this.#byteSize;
    if (slotByteSize > room) return undefined;
    const wanted = Math.max(growthByteSize, slotByteSize, this.#byteSize);
    try {
      return this.#grow(Math.min(wanted, room));
    } catch {
      return undefined;
    }
  }

  #grow(byteSize: number): Segment {
    const memory = this.#parts.createSegment(byteSize);
    const segment = { memory, used: new Map(), free: new Map(), top: 0 };
    this.#segments.push(segment);
    this.#byteSize += byteSize;
    return segment;
  }

  [Symbol.dispose](): void {
    for (const { memory } of this.#segments.splice(0)) memory[Symbol.dispose]();
    this.#byteSize = this.#usedCount = 0;
  }
}

function takeSlot(segment: Segment, slotByteSize: number): number | undefined {
  const free = segment.free.get(slotByteSize)?.pop();
  if (free !== undefined) return free;
  const offset = segment.top;
  if (offset + slotByteSize > segment.memory.bytes.length) return undefined;
  segment.top = offset + slotByteSize;
  return offset;
}

/** The size of slots for so many bytes: a power of two, or one with a quarter, half or three quarters more. */
function slotSize(byteSize: number): number {
  if (byteSize <= ALIGNMENT * 4) return Math.ceil(byteSize / ALIGNMENT) * ALIGNMENT;
  const step = 2 ** Math.floor(Math.log2(byteSize)) / 4;
  return Math.ceil(byteSize / step) * step;
}
