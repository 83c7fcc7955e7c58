import type { Clock } from "./clock.ts";
import type { RequestTrace } from "./inference_api.ts";
import { type Log, moduleLog } from "./log.ts";
import type { ShownTraceSetting, TraceChange, TraceOptions, TraceValues } from "./options_trace.ts";
import { SpanBatch } from "./span_batch.ts";
import type { PostSpans } from "./span_batch.ts";
import { SpanSink } from "./span_sink.ts";
import { TraceRecord } from "./trace.ts";
import { type FieldLookup, parseTraceContext } from "./trace_context.ts";
import { TraceFile, type WriteTraceText } from "./trace_file.ts";
import { TraceFileSink } from "./trace_file_sink.ts";
import type { TraceSink } from "./trace_setting.ts";
import { TraceSettings } from "./trace_settings.ts";

/** What tracing gets from the process that hosts it. */
export interface TracerParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly write: WriteTraceText;
  /** Sends an OTLP/HTTP request; rejects when it was not taken. */
  readonly post: PostSpans;
  /** Fills bytes at random, for the ids of spans. */
  readonly randomBytes: (byteCount: number) => Uint8Array;
}

/** Decides which requests are traced, and brings their traces where they belong (observability.md §5). */
export class Tracer {
  readonly #options: TraceOptions;
  readonly #parts: TracerParts;
  readonly #settings: TraceSettings;
  readonly #file: TraceFile;
  readonly #spans: SpanBatch;
  #lastId = 0;

  /** @throws ServerError INVALID_ARG when the options cannot be traced by. */
  constructor(options: TraceOptions, parts: TracerParts) {
    this.#options = options;
    this.#parts = { ...parts, log: moduleLog(parts.log, "tracer.ts") };
    this.#file = new TraceFile({ ...this.#parts, path: options.file });
    this.#spans = new SpanBatch(options.openTelemetry, this.#parts);
    this.#settings = new TraceSettings(options, (values) => this.#openSink(values));
  }

  #openSink(values: TraceValues): TraceSink {
    if (this.#options.mode === "triton") return new TraceFileSink(values, this.#file);
    if (values.levels.includes("TENSORS")) {
      this.#parts.log.error("trace level TENSORS is not supported in opentelemetry mode");
    }
    return new SpanSink(this.#spans, this.#parts);
  }

  /** False when every setting is OFF. */
  get isActive(): boolean {
    return this.#settings.isActive;
  }

  /** Begins the trace of a request that just came, if it is to be traced. */
  start(model: string, fields: FieldLookup): RequestTrace | undefined {
    const isFiles = this.#options.mode === "triton";
    const context = isFiles ? undefined : parseTraceContext(fields);
    const setting = this.#settings.settingOf(model);
    if (!setting.sample(context !== undefined)) return undefined;
    const { levels } = setting.values;
    const record = new TraceRecord({
      timestamps: levels.includes("TIMESTAMPS"),
      tensors: isFiles && levels.includes("TENSORS"),
      nextId: () => ++this.#lastId,
      now: () => this.#parts.clock.now(),
      context,
      randomBytes: isFiles ? undefined : this.#parts.randomBytes,
      onComplete: (done) => setting.finished(done),
    });
    return record.root;
  }

  /** Changes a setting and returns it, see `TraceSettings.update`; `model` "" = the global one. */
  update(model: string, change: TraceChange): ShownTraceSetting {
    this.#settings.update(model, change);
    return this.#settings.show(model);
  }

  /** Writes and sends what is left; settles within some seconds. */
  async close(): Promise<void> {
    this.#settings.close();
    await Promise.all([this.#file.close(), this.#spans.close()]);
  }
}
