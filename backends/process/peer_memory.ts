/** A segment of the other process, mapped here. */
export interface PeerSegment extends Disposable {
  readonly bytes: Uint8Array;
}

/** A child with more segments than this does not keep to what it was told of its limits. */
const SEGMENT_COUNT_MAX = 256;

/**
 * The memory of the other process as far as it was used: mapped at first use, and kept until it was closed and nobody
 * looks at a part of it any more, also when the process is gone.
 */
export class PeerMemory {
  readonly #openSegment: (segment: number) => PeerSegment;
  readonly #segments = new Map<number, PeerSegment>();
  #holdCount = 0;
  #isClosed = false;

  constructor(openSegment: (segment: number) => PeerSegment) {
    this.#openSegment = openSegment;
  }

  /**
   * A view of a part; `hold` it before it goes anywhere.
   * @throws RangeError when the part is not inside the segment, and what opening throws.
   */
  view(segment: number, offset: number, byteSize: number): Uint8Array {
    const { bytes } = this.#segments.get(segment) ?? this.#open(segment);
    const isInside = Number.isSafeInteger(offset) && Number.isSafeInteger(byteSize) &&
      offset >= 0 && byteSize >= 0 && offset + byteSize <= bytes.length;
    if (!isInside) {
      throw new RangeError(
        `Segment ${segment} has ${bytes.length} bytes, got ${byteSize} at ${offset}`,
      );
    }
    return bytes.subarray(offset, offset + byteSize);
  }

  /** Keeps everything mapped until `release` was called as often. */
  hold(): void {
    this.#holdCount++;
  }

  release(): void {
    this.#holdCount--;
    this.#unmapUnused();
  }

  /** Nothing is looked at any more but what is held. */
  close(): void {
    this.#isClosed = true;
    this.#unmapUnused();
  }

  #open(segment: number): PeerSegment {
    if (!Number.isSafeInteger(segment) || segment < 0 || segment > 0x7fff_ffff) {
      throw new RangeError(`Expected the number of a segment, got ${segment}`);
    }
    if (this.#isClosed) throw new RangeError("The memory of the process is closed");
    if (this.#segments.size >= SEGMENT_COUNT_MAX) {
      throw new RangeError(`At most ${SEGMENT_COUNT_MAX} segments are opened`);
    }
    const opened = this.#openSegment(segment);
    this.#segments.set(segment, opened);
    return opened;
  }

  #unmapUnused(): void {
    if (!this.#isClosed || this.#holdCount > 0) return;
    for (const segment of this.#segments.values()) segment[Symbol.dispose]();
    this.#segments.clear();
  }
}
