import type { TraceValues } from "./options_trace.ts";
import type { TraceRecord } from "./trace.ts";
import type { TraceFile } from "./trace_file.ts";
import { formatTraceRecord } from "./trace_json.ts";
import type { TraceSink } from "./trace_setting.ts";

/** Characters of traces that wait for their numbered file to be complete. */
const MAX_PENDING_CHARACTERS = 32 * 1024 * 1024;

/** Distributes the traces of one setting over the main file and numbered ones (observability.md §5.4). */
export class TraceFileSink implements TraceSink {
  readonly #file: TraceFile;
  readonly #values: TraceValues;
  #pending: string[] = [];
  #pendingCharacters = 0;
  #writtenCount = 0;

  constructor(values: TraceValues, file: TraceFile) {
    this.#values = values;
    this.#file = file;
  }

  write(record: TraceRecord): void {
    const text = formatTraceRecord(record);
    if (text === "") return;
    const { logFrequency, count } = this.#values;
    this.#writtenCount++;
    if (logFrequency === 0 && count <= 0) return this.#file.append([text]);
    this.#pending.push(text);
    this.#pendingCharacters += text.length;
    const isFileFull = logFrequency > 0 && this.#pending.length >= logFrequency;
    const isLast = count > 0 && this.#writtenCount >= count;
    if (isFileFull || isLast) this.#flush("numbered");
    else if (this.#pendingCharacters > MAX_PENDING_CHARACTERS) this.#flushRest();
  }

  close(): void {
    this.#flushRest();
  }

  #flushRest(): void {
    this.#flush(this.#values.logFrequency > 0 ? "numbered" : "main");
  }

  #flush(where: "numbered" | "main"): void {
    if (this.#pending.length === 0) return;
    if (where === "numbered") this.#file.writeNumbered(this.#pending);
    else this.#file.append(this.#pending);
    this.#pending = [];
    this.#pendingCharacters = 0;
  }
}
