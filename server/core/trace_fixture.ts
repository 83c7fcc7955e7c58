import type { Span } from "../../proto/otlp.ts";
import { FakeClock } from "./fake_clock.ts";
import type { Log } from "./log.ts";
import { DEFAULT_TRACE_OPTIONS, type TraceOptions } from "./options_trace.ts";
import { Tracer, type TracerParts } from "./tracer.ts";

/** A tracer over files in memory, in virtual time. */
export class TraceFixture {
  readonly clock = new FakeClock();
  readonly files = new Map<string, string>();
  readonly lines: string[] = [];
  /** Bodies that were posted, and where. */
  readonly posts: { readonly url: string; readonly body: Uint8Array }[] = [];
  readonly tracer: Tracer;
  /** What the next writes fail with. */
  writeError: Error | undefined;
  postError: Error | undefined;
  #lastByte = 0;

  constructor(options: Partial<TraceOptions> = {}, parts: Partial<TracerParts> = {}) {
    this.tracer = new Tracer({ ...DEFAULT_TRACE_OPTIONS, file: "t.json", ...options }, {
      clock: this.clock,
      log: this.#log(),
      write: (path, text, how) => {
        if (this.writeError !== undefined) return Promise.reject(this.writeError);
        this.files.set(path, how === "create" ? text : this.files.get(path)! + text);
        return Promise.resolve();
      },
      post: (url, body) => {
        if (this.postError !== undefined) return Promise.reject(this.postError);
        this.posts.push({ url, body });
        return Promise.resolve();
      },
      randomBytes: (count) => new Uint8Array(count).fill(++this.#lastByte),
      ...parts,
    });
  }

  #log(): Log {
    const note = (message: string) => void this.lines.push(message);
    return { info: note, warning: note, error: note, verbose: (_level, message) => note(message) };
  }

  /** Runs a request without anything behind it; true when it was traced. */
  request(model = "m", fields: Readonly<Record<string, string>> = {}): boolean {
    const trace = this.tracer.start(model, { get: (name) => fields[name] });
    trace?.mark("HTTP_RECV_START");
    trace?.end();
    return trace !== undefined;
  }

  /** Ids of the traces in a file. */
  ids(path: string): number[] {
    const entries = JSON.parse(this.files.get(path) ?? "[]") as { id: number }[];
    return [...new Set(entries.map(({ id }) => id))];
  }
}

/** The names of spans with those of their parents. */
export function spanTree(spans: readonly Span[]): string[] {
  const names = new Map(spans.map(({ spanId, name }) => [String(spanId), name]));
  return spans.map(({ parentSpanId, name }) => `${names.get(String(parentSpanId)) ?? ""}>${name}`);
}
