import { encodeSpans, type Span, type SpanAttribute } from "../../proto/otlp.ts";
import { ServerError } from "../../proto/status.ts";
import type { Clock, Timer } from "./clock.ts";
import type { Log } from "./log.ts";
import type { OpenTelemetryOptions } from "./options_trace.ts";

const SERVICE_NAME = "triton-inference-server";
const SCOPE = "triton-server";
/** Failed exports are told of once in a while. */
const WARNING_INTERVAL_MS = 60_000;
/** Requests to the collector that the end of the server waits for. */
const MAX_LAST_EXPORTS = 8;

/** Posts the body of an OTLP/HTTP request (protobuf). @throws what kept it from being taken, after a bounded time. */
export type PostSpans = (url: string, body: Uint8Array) => Promise<void>;

/** What a batch works with. */
export interface SpanBatchParts {
  readonly post: PostSpans;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * Collects spans and exports them in batches, one request at a time (cli.md §2.6): when there are enough for a batch,
 * or after the delay. Spans that find the queue full are dropped, and so is a batch that the collector does not take.
 */
export class SpanBatch {
  readonly #options: OpenTelemetryOptions;
  readonly #parts: SpanBatchParts;
  readonly #resource: readonly SpanAttribute[];
  readonly #waiting: Span[] = [];
  #droppedCount = 0;
  #warnedMs = -Infinity;
  #timer: Timer | undefined;
  #exporting: Promise<void> | undefined;

  constructor(options: OpenTelemetryOptions, parts: SpanBatchParts) {
    this.#options = options;
    this.#parts = parts;
    const resource = new Map<string, string>([["service.name", SERVICE_NAME], ...options.resource]);
    this.#resource = [...resource];
  }

  add(spans: readonly Span[]): void {
    for (const span of spans) {
      if (this.#waiting.length < this.#options.maxQueueSize) this.#waiting.push(span);
      else this.#drop(1, "more spans come than the collector takes");
    }
    this.#plan();
  }

  #plan(): void {
    if (this.#exporting !== undefined || this.#waiting.length === 0) return;
    const { maxExportBatchSize, maxQueueSize, scheduleDelayMs } = this.#options;
    const isEnough = this.#waiting.length >= Math.min(maxExportBatchSize, maxQueueSize);
    if (isEnough) return void this.#export();
    this.#timer ??= this.#parts.clock.setTimer(scheduleDelayMs, () => {
      this.#timer = undefined;
      if (this.#exporting === undefined) void this.#export();
    });
  }

  /** Sends one batch; never rejects. */
  #export(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    const { url, maxExportBatchSize } = this.#options;
    const batch = this.#waiting.splice(0, maxExportBatchSize);
    this.#exporting = this.#parts.post(url, encodeSpans(batch, this.#resource, SCOPE)).catch(
      (reason) => this.#drop(batch.length, `${url}: ${ServerError.from(reason).message}`),
    ).finally(() => {
      this.#exporting = undefined;
      this.#plan();
    });
    return this.#exporting;
  }

  #drop(count: number, reason: string): void {
    this.#droppedCount += count;
    const nowMs = this.#parts.clock.now();
    if (nowMs - this.#warnedMs < WARNING_INTERVAL_MS) return;
    this.#warnedMs = nowMs;
    this.#parts.log.warning(`trace spans are dropped (${this.#droppedCount} so far): ${reason}`);
  }

  /** Exports what waits; what cannot be sent in a few requests is given up. */
  async close(): Promise<void> {
    const droppedCount = this.#droppedCount;
    for (let round = 0; round < MAX_LAST_EXPORTS; round++) {
      await (this.#exporting ?? (this.#waiting.length > 0 ? this.#export() : undefined));
      if (this.#droppedCount > droppedCount) break;
    }
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#waiting.length = 0;
  }
}
