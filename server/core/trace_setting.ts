import type { TraceValues } from "./options_trace.ts";
import type { TraceRecord } from "./trace.ts";

/** Where the finished traces of one setting go. */
export interface TraceSink {
  write(record: TraceRecord): void;
  /** Nothing comes any more. */
  close(): void;
}

/**
 * A setting in force: what is traced, and how much of it was. Any update makes a new one, which starts to count anew;
 * traces that run keep the old one (observability.md §5.1).
 */
export class TraceSetting {
  readonly values: TraceValues;
  readonly #sink: TraceSink;
  #seenCount = 0;
  #leftCount: number;
  #openCount = 0;
  #isRetired = false;

  constructor(values: TraceValues, sink: TraceSink) {
    this.values = values;
    this.#sink = sink;
    this.#leftCount = values.count;
  }

  /** False when nothing can be traced whatever comes. */
  get isOn(): boolean {
    return this.values.levels.length > 0;
  }

  /** Requests still to be traced; -1 = any number. */
  get leftCount(): number {
    return this.#leftCount;
  }

  /** Whether the request that just came is traced (§5.2); `finished` must then be called once. */
  sample(isForced: boolean): boolean {
    if (!this.isOn || (!isForced && !this.#isHit())) return false;
    this.#openCount++;
    return true;
  }

  #isHit(): boolean {
    const { rate } = this.values;
    if (rate === 0 || this.#leftCount === 0 || ++this.#seenCount % rate !== 0) return false;
    if (this.#leftCount > 0) this.#leftCount--;
    return true;
  }

  /** A traced request has ended. */
  finished(record: TraceRecord): void {
    this.#openCount--;
    this.#sink.write(record);
    this.#closeWhenDone();
  }

  /** Another setting takes its place. */
  retire(): void {
    this.#isRetired = true;
    this.#closeWhenDone();
  }

  #closeWhenDone(): void {
    if (this.#isRetired && this.#openCount === 0) this.#sink.close();
  }
}
