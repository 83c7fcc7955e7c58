import { alignTo64, BlockRing, freeBlock } from "./block_ring.ts";
import { FrameReader } from "./frame_reader.ts";
import { FrameWriter } from "./frame_writer.ts";

const FIRST_RING_BYTES = 1 << 18;
const MAX_RING_BYTES = 1 << 26;
/** A ring that is replaced holds so many of the frames that did not fit. */
const FRAMES_PER_RING = 8;

/** Tells the other thread which memory the offsets that follow mean. */
export interface RingAnnouncement {
  readonly kind: "ring";
  readonly buffer: SharedArrayBuffer;
}

/**
 * Sends frames to the other thread: the frame goes into shared memory, the message is its offset, the cheapest that
 * there is. A frame for which the ring has no room gets memory of its own, which is then the message.
 */
export class FrameSender {
  readonly #post: (message: unknown) => void;
  readonly #writer = new FrameWriter();
  #ring: BlockRing | undefined;

  constructor(post: (message: unknown) => void) {
    this.#post = post;
  }

  /** Tensors over this memory reach the other thread without a copy. */
  lend(memory: SharedArrayBuffer): void {
    this.#writer.lend(memory);
  }

  /** Writes a frame and sends it. `write` gets an empty frame. */
  send(write: (frame: FrameWriter) => void): void {
    const writer = this.#writer.begin();
    write(writer);
    const byteSize = writer.byteSize;
    const ring = this.#ring ?? this.#replaceRing(FIRST_RING_BYTES);
    const offset = ring.tryAllocate(byteSize) ?? this.#growFor(ring, byteSize);
    if (offset === undefined) {
      const own = new SharedArrayBuffer(alignTo64(byteSize));
      writer.writeTo(own, 0);
      this.#postPlace(own);
      return;
    }
    writer.writeTo(this.#ring!.buffer, offset);
    this.#postPlace(offset);
  }

  #postPlace(place: number | SharedArrayBuffer): void {
    const enclosed = this.#writer.enclosed;
    this.#post(enclosed.length === 0 ? place : [place, ...enclosed]);
  }

  #growFor(ring: BlockRing, byteSize: number): number | undefined {
    const wanted = 2 ** Math.ceil(Math.log2(byteSize * FRAMES_PER_RING));
    const size = Math.min(wanted, MAX_RING_BYTES);
    if (size <= ring.byteSize) return undefined;
    return this.#replaceRing(size).tryAllocate(byteSize);
  }

  #replaceRing(byteSize: number): BlockRing {
    this.#ring = new BlockRing(byteSize);
    this.#post({ kind: "ring", buffer: this.#ring.buffer } satisfies RingAnnouncement);
    return this.#ring;
  }
}

/** A frame that arrived. Its memory is used again after `release`. */
export interface ArrivedFrame {
  readonly reader: FrameReader;
  release(): void;
}

/** The other end of {@linkcode FrameSender}. */
export class FrameReceiver {
  #buffer: SharedArrayBuffer | undefined;

  /** The frame of a message; undefined when the message is none (or was an announcement). */
  receive(message: unknown): ArrivedFrame | undefined {
    if (Array.isArray(message)) return this.#openPlace(message[0], message.slice(1));
    return this.#openPlace(message, []);
  }

  #openPlace(
    place: unknown,
    enclosed: readonly SharedArrayBuffer[],
  ): ArrivedFrame | undefined {
    if (typeof place === "number") return this.#open(place, enclosed);
    if (place instanceof SharedArrayBuffer) {
      return { reader: new FrameReader(place, 0, enclosed), release() {} };
    }
    if (isRingAnnouncement(place)) this.#buffer = place.buffer;
    return undefined;
  }

  #open(offset: number, enclosed: readonly SharedArrayBuffer[]): ArrivedFrame | undefined {
    const buffer = this.#buffer;
    const isPlace = buffer !== undefined && offset > 0 && offset < buffer.byteLength &&
      offset % 64 === 0;
    if (!isPlace) throw new RangeError(`There is no frame at ${offset}`);
    let isReleased = false;
    return {
      reader: new FrameReader(buffer, offset, enclosed),
      release() {
        if (isReleased) return;
        isReleased = true;
        freeBlock(buffer, offset);
      },
    };
  }
}

function isRingAnnouncement(message: unknown): message is RingAnnouncement {
  return typeof message === "object" && message !== null &&
    (message as { kind?: unknown }).kind === "ring";
}
