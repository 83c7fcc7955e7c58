import { ServerError } from "../../proto/status.ts";
import type { Clock, Timer } from "./clock.ts";
import type { Log } from "./log.ts";

/** Characters that may wait to be written; traces that come then are dropped. */
const MAX_WAITING_CHARACTERS = 64 * 1024 * 1024;
/** How long traces of the main file are collected for one write. */
const COLLECT_MS = 50;
/** How long the end waits for a file that takes nothing: a pipe that nobody reads, a disk that is away. */
const CLOSE_MS = 5000;

/** Writes a file: "create" empties it first. */
export type WriteTraceText = (
  path: string,
  text: string,
  how: "create" | "append",
) => Promise<void>;

/** What a trace file works with. */
export interface TraceFileParts {
  readonly path: string;
  readonly write: WriteTraceText;
  readonly clock: Clock;
  readonly log: Log;
}

/**
 * The trace file and its numbered companions (observability.md §5.4). Everything is written in the background, one
 * write at a time; who adds traces never waits.
 */
export class TraceFile {
  readonly #parts: TraceFileParts;
  /** Traces for the main file, and complete numbered files. */
  #main: string[] = [];
  readonly #numbered: { readonly path: string; readonly text: string }[] = [];
  #waitingCharacters = 0;
  #nextIndex = 0;
  #isCreated = false;
  #isBroken = false;
  #droppedCount = 0;
  #timer: Timer | undefined;
  #writing: Promise<void> | undefined;

  constructor(parts: TraceFileParts) {
    this.#parts = parts;
  }

  /** Appends traces to the main file. */
  append(traces: readonly string[]): void {
    if (!this.#take(traces)) return;
    this.#main.push(...traces);
    this.#timer ??= this.#parts.clock.setTimer(COLLECT_MS, () => {
      this.#timer = undefined;
      this.#start();
    });
  }

  /** Writes traces as a complete file with the next number. */
  writeNumbered(traces: readonly string[]): void {
    if (!this.#take(traces)) return;
    const path = `${this.#parts.path}.${this.#nextIndex++}`;
    this.#numbered.push({ path, text: `[${traces.join(",")}]` });
    this.#start();
  }

  #take(traces: readonly string[]): boolean {
    const characters = charactersOf(traces);
    if (this.#waitingCharacters + characters > MAX_WAITING_CHARACTERS) {
      if (this.#droppedCount === 0) {
        this.#parts.log.warning(
          `traces are dropped: ${this.#parts.path} cannot be written as fast as they come`,
        );
      }
      this.#droppedCount += traces.length;
      return false;
    }
    this.#waitingCharacters += characters;
    return true;
  }

  #start(): void {
    this.#writing ??= this.#drain().finally(() => this.#writing = undefined);
  }

  async #drain(): Promise<void> {
    for (;;) {
      const numbered = this.#numbered.shift();
      if (numbered !== undefined) {
        await this.#write(numbered.path, numbered.text, "create");
        this.#waitingCharacters -= numbered.text.length;
        continue;
      }
      const traces = this.#main;
      if (traces.length === 0) return;
      this.#main = [];
      await this.#writeMain(traces.join(","));
      this.#waitingCharacters -= charactersOf(traces);
    }
  }

  async #writeMain(text: string): Promise<void> {
    const { path } = this.#parts;
    if (this.#isCreated) await this.#write(path, `,${text}`, "append");
    else this.#isCreated = await this.#write(path, `[${text}`, "create");
  }

  async #write(path: string, text: string, how: "create" | "append"): Promise<boolean> {
    try {
      await this.#parts.write(path, text, how);
      return true;
    } catch (reason) {
      // Once is enough: a disk that is full stays so for a while.
      if (!this.#isBroken) {
        this.#parts.log.error(
          `traces are lost: failed to write ${path}: ${ServerError.from(reason).message}`,
        );
      }
      this.#isBroken = true;
      return false;
    }
  }

  async #writeEnd(): Promise<void> {
    this.#start();
    await this.#writing;
    if (this.#isCreated) await this.#write(this.#parts.path, "]", "append");
    this.#isCreated = false;
  }

  /** Writes what waits, and the end of the main file; settles in some seconds even if nothing can be written. */
  async close(): Promise<void> {
    const { path, clock, log } = this.#parts;
    this.#timer?.cancel();
    this.#timer = undefined;
    const isInTime = await new Promise<boolean>((resolve) => {
      const patience = clock.setTimer(CLOSE_MS, () => resolve(false));
      void this.#writeEnd().finally(() => {
        patience.cancel();
        resolve(true);
      });
    });
    if (!isInTime) log.error(`traces are lost: ${path} took nothing for ${CLOSE_MS / 1000} s`);
    if (this.#droppedCount > 0) {
      this.#parts.log.warning(`${this.#droppedCount} traces were dropped`);
    }
  }
}

function charactersOf(texts: readonly string[]): number {
  return texts.reduce((sum, text) => sum + text.length + 1, 0);
}
