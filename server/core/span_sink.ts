import type { Clock } from "./clock.ts";
import type { SpanBatch } from "./span_batch.ts";
import type { TraceRecord } from "./trace.ts";
import type { TraceSink } from "./trace_setting.ts";
import { createSpans, type SpanParts } from "./trace_spans.ts";

/** Turns finished traces into spans, for export. */
export class SpanSink implements TraceSink {
  readonly #batch: SpanBatch;
  readonly #parts: SpanParts;

  constructor(
    batch: SpanBatch,
    { clock, randomBytes }: { clock: Clock; randomBytes: SpanParts["randomBytes"] },
  ) {
    this.#batch = batch;
    // Whole milliseconds apart: nanoseconds since 1970 are more than a double holds.
    const offsetMs = Math.round(clock.wallNow() - clock.now());
    const toWallNs = (ms: number) => BigInt(offsetMs) * 1_000_000n + BigInt(Math.round(ms * 1e6));
    this.#parts = { randomBytes, toWallNs };
  }

  write(record: TraceRecord): void {
    this.#batch.add(createSpans(record, this.#parts));
  }

  close(): void {
    // Spans leave on their own.
  }
}
