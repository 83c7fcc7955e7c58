import type { Http2Stream } from "./http2_stream.ts";

const INITIAL_LENGTH = 64;
const LENGTH_MAX = 4_096;

/**
 * Open streams by their ids, which the peer chooses and which only grow.
 *
 * No `Map` for all: one whose entries change all the time is copied again and again, and a copy that has grown old in the
 * heap keeps the next one, with the streams that were in it, from being collected.
 */
export class Http2StreamIndex {
  /** Each id has its place, which is that of one stream at a time; the length is a power of two. */
  #places: (Http2Stream | undefined)[] = new Array(INITIAL_LENGTH).fill(undefined);
  #placedCount = 0;
  /** Streams whose place is taken by one that is open for longer. */
  readonly #others = new Map<number, Http2Stream>();

  get size(): number {
    return this.#placedCount + this.#others.size;
  }

  get(id: number): Http2Stream | undefined {
    const stream = this.#places[this.#place(id)];
    if (stream?.id === id) return stream;
    return this.#others.size === 0 ? undefined : this.#others.get(id);
  }

  /** Takes in a stream whose id is not there. */
  add(stream: Http2Stream): void {
    if (this.#placedCount * 2 >= this.#places.length) this.#grow();
    const place = this.#place(stream.id);
    if (this.#places[place] === undefined) {
      this.#places[place] = stream;
      this.#placedCount++;
    } else this.#others.set(stream.id, stream);
  }

  /** False when it is not there. */
  delete(id: number): boolean {
    const place = this.#place(id);
    if (this.#places[place]?.id !== id) return this.#others.delete(id);
    this.#places[place] = undefined;
    this.#placedCount--;
    return true;
  }

  /** All streams, as they are now. */
  values(): Http2Stream[] {
    const placed = this.#places.filter((stream) => stream !== undefined);
    return [...placed, ...this.#others.values()];
  }

  clear(): void {
    this.#places.fill(undefined);
    this.#placedCount = 0;
    this.#others.clear();
  }

  /** Ids of a client are odd. */
  #place(id: number): number {
    return id >> 1 & (this.#places.length - 1);
  }

  #grow(): void {
    if (this.#places.length >= LENGTH_MAX) return;
    const streams = this.#places.filter((stream) => stream !== undefined);
    this.#places = new Array(this.#places.length * 2).fill(undefined);
    // Those that have places of their own among fewer have so among more.
    for (const stream of streams) this.#places[this.#place(stream.id)] = stream;
  }
}
