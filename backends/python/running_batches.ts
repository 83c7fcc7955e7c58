import { ServerError } from "../../proto/status.ts";
import type { ExecuteOutcome, ExecuteReport, ExecuteRequest, ExecuteResponse } from "../backend.ts";
import { LiveRequest, type LiveRequestOwner, releaseResponse } from "../process/live_request.ts";
import { NumberedTable } from "../process/numbered_table.ts";
import type { RequestHead } from "../process/request_head.ts";
import { wireRequest } from "./request_wire.ts";
import { clipText } from "../process/wire_values.ts";
import { readResult } from "./result_wire.ts";
import type { FramePort } from "../process/stub_link.ts";
import type { StubMemory } from "../process/stub_memory.ts";
import type { Frame } from "../process/frame.ts";
import { FRAME } from "./stub_wire.ts";
import type { TensorWriter } from "../process/tensor_wire.ts";

/** What batches are run with. */
export interface RunningBatchesParts {
  /** What the main thread of the process reads, and what a thread of its own reads. */
  readonly main: FramePort;
  readonly aside: FramePort;
  readonly memory: StubMemory;
  readonly now: () => number;
}

/** So many batches may be with the process: one that runs and those that wait in its socket. */
const AHEAD_COUNT_MAX = 8;
/** None is given ahead of its turn when executions take longer than this, or the one that runs has taken as long. */
const SHORT_EXECUTION_MS = 1;
const CURRENT_EXECUTION_MS = 2;
/** A new measurement's share of the mean duration. */
const MEAN_SHARE = 0.25;
/** Larger tensors take room in the shared memory, which a request that runs may need. */
const AHEAD_BYTE_SIZE_MAX = 16 * 1024;

interface Batch {
  /** By position of the request; undefined = refused before. */
  readonly lives: readonly (LiveRequest | undefined)[];
  readonly refusals: readonly (ExecuteOutcome | undefined)[];
  inputEndMs: number;
  /** Set when it waited behind others. */
  startMs: number | undefined;
  readonly isAhead: boolean;
  readonly resolve: (report: ExecuteReport | undefined) => void;
}

/** Batches that a process runs, and requests that it has not answered to the end. */
export class RunningBatches {
  readonly #parts: RunningBatchesParts;
  readonly #batches = new NumberedTable<Batch>();
  readonly #lives = new NumberedTable<LiveRequest>();
  readonly #owner: LiveRequestOwner;
  /** Of an execution, as the process measures it; large until there was one. */
  #meanMs = Infinity;
  /** When the batch that runs began, as far as that is seen here. */
  #currentMs = 0;

  constructor(parts: RunningBatchesParts) {
    this.#parts = parts;
    const { aside } = parts;
    this.#owner = {
      credit: (number, n) => aside.send(FRAME.credit, number, { n }),
      cancelled: (number) => aside.send(FRAME.cancelled, number),
      closed: (number) => void this.#lives.delete(number),
    };
  }

  /** Batches wait behind the one that runs. */
  get hasAhead(): boolean {
    return this.#batches.size > 1;
  }

  /** Requests that have not had their final response. */
  get liveCount(): number {
    return this.#lives.size;
  }

  /** A request that has not had its final response. */
  find(number: number): ExecuteRequest | undefined {
    return this.#lives.get(number)?.request;
  }

  /**
   * Whether a request may be sent behind the batches that run: executions are so short that the process would sleep and
   * be woken between them for longer.
   */
  takesAhead({ inputs }: ExecuteRequest): boolean {
    if (this.#meanMs > SHORT_EXECUTION_MS || this.#batches.size >= AHEAD_COUNT_MAX) return false;
    if (this.#parts.now() - this.#currentMs > CURRENT_EXECUTION_MS) return false;
    return inputs.every(({ data }) => data.byteLength <= AHEAD_BYTE_SIZE_MAX);
  }

  /**
   * Runs a batch: one frame to the process, one promise. Never rejects; undefined when the process ended before it
   * began.
   */
  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | undefined> {
    const writer = this.#parts.memory.writer();
    const lives: (LiveRequest | undefined)[] = [];
    const refusals: (ExecuteOutcome | undefined)[] = [];
    const wires: RequestHead[] = [];
    for (const request of requests) {
      try {
        const tensors = writer.writeAll(request.inputs);
        const live = new LiveRequest(request, this.#lives.nextNumber(), this.#owner);
        this.#lives.set(live.number, live);
        lives.push(live);
        refusals.push(undefined);
        wires.push(wireRequest(request, live.number, tensors));
      } catch (reason) {
        lives.push(undefined);
        refusals.push({ error: ServerError.from(reason) });
      }
    }
    return new Promise((resolve) => {
      const inputEndMs = this.#parts.now();
      const isAhead = this.#batches.size > 0;
      const batch = { lives, refusals, inputEndMs, startMs: undefined, isAhead, resolve };
      if (wires.length === 0) resolve(this.#report(batch, refusals as ExecuteOutcome[]));
      else this.#send(batch, wires, writer);
    });
  }

  #send(batch: Batch, wires: readonly RequestHead[], writer: TensorWriter): void {
    const number = this.#batches.nextNumber();
    this.#batches.set(number, batch);
    try {
      this.#parts.main.send(FRAME.execute, number, { r: wires }, writer.payload);
    } catch (reason) {
      writer.discard();
      this.#batches.delete(number);
      this.#fail(batch, ServerError.from(reason));
      return;
    }
    batch.inputEndMs = this.#parts.now();
    if (!batch.isAhead) this.#currentMs = batch.inputEndMs;
    for (const live of batch.lives) {
      if (live?.request.signal?.aborted) this.#owner.cancelled(live.number);
    }
  }

  /** EXECUTED. @throws RangeError, SyntaxError for what cannot be; the batch then runs on. */
  executed({ id, json, payload }: Frame): void {
    const batch = this.#batches.get(id);
    if (batch === undefined) throw new RangeError(`Batch ${id} does not run`);
    const { r: results, k: rescheduled = [], error, u: durationUs } = json;
    this.#measured(batch, durationUs);
    if (typeof error === "string") {
      this.#batches.delete(id);
      return this.#fail(batch, new ServerError("INTERNAL", clipText(error)));
    }
    const sentCount = batch.lives.filter((live) => live !== undefined).length;
    if (!Array.isArray(results) || results.length !== sentCount || !Array.isArray(rescheduled)) {
      throw new RangeError(`Expected ${sentCount} results of batch ${id}`);
    }
    const responses = this.#readResults(results, payload);
    this.#batches.delete(id);
    this.#finish(batch, responses, new Set(rescheduled as unknown[]));
  }

  #measured(batch: Batch, durationUs: unknown): void {
    const durationMs = typeof durationUs === "number" && durationUs >= 0 ? durationUs / 1000 : 0;
    const now = this.#currentMs = this.#parts.now();
    this.#meanMs = this.#meanMs === Infinity
      ? durationMs
      : this.#meanMs + MEAN_SHARE * (durationMs - this.#meanMs);
    if (!batch.isAhead) return;
    // What it waited for others is time in the queue.
    batch.startMs = Math.max(batch.inputEndMs, now - durationMs);
    batch.inputEndMs = batch.startMs;
  }

  /** SEND. @throws RangeError, SyntaxError */
  sent({ id, json, payload }: Frame): void {
    const { r: result, l: isLast } = json;
    const response = result === undefined || result === null
      ? undefined
      : { ...this.#read(result, payload), outputStartMs: this.#parts.now() };
    const live = this.#lives.get(id);
    if (live === undefined) releaseResponse(response);
    else live.receive(response, isLast === true);
  }

  /** DROPPED. */
  dropped({ id }: Frame): void {
    const live = this.#lives.get(id);
    const error = new ServerError(
      "INTERNAL",
      live?.isSent
        ? "the model dropped the response sender of this request without the final flag"
        : "the model dropped this request and its response sender without a response",
    );
    live?.receive({ error }, true);
  }

  /** Ends everything: the process is gone. */
  failAll(error: ServerError): void {
    const batches = this.#batches.values();
    this.#batches.clear();
    // The process takes one after the other, so only the first has begun.
    batches.forEach((batch, index) => index === 0 ? this.#fail(batch, error) : giveUp(batch));
    for (const live of this.#lives.values()) live.receive({ error }, true);
  }

  #readResults(results: readonly unknown[], payload: Uint8Array) {
    const responses: (ExecuteResponse | undefined)[] = [];
    try {
      for (const result of results) {
        responses.push(result === null ? undefined : this.#read(result, payload));
      }
      return responses;
    } catch (error) {
      responses.forEach(releaseResponse);
      throw error;
    }
  }

  #read(result: unknown, payload: Uint8Array): ExecuteResponse {
    const { memory } = this.#parts;
    return readResult(result, { payload, peer: memory.peer }, memory.giveBack);
  }

  #finish(
    batch: Batch,
    responses: readonly (ExecuteResponse | undefined)[],
    rescheduled: ReadonlySet<unknown>,
  ): void {
    let next = 0;
    const waits: Promise<void>[] = [];
    const outcomes = batch.lives.map((live, position): ExecuteOutcome => {
      if (live === undefined) return batch.refusals[position]!;
      const index = next++;
      if (!rescheduled.has(index)) return finishRequest(live, responses[index]);
      releaseResponse(responses[index]);
      live.close();
      // What was sent of this turn goes before what the next one sends.
      if (live.taken !== undefined) waits.push(live.taken);
      return { streamed: true, reschedule: true };
    });
    const report = this.#report(batch, outcomes);
    if (waits.length === 0) batch.resolve(report);
    else void Promise.all(waits).then(() => batch.resolve(report));
  }

  #fail(batch: Batch, error: ServerError): void {
    const outcomes = batch.lives.map((live, position): ExecuteOutcome =>
      live === undefined ? batch.refusals[position]! : finishRequest(live, { error })
    );
    batch.resolve(this.#report(batch, outcomes));
  }

  #report(
    { startMs, inputEndMs }: Batch,
    outcomes: readonly ExecuteOutcome[],
  ): ExecuteReport {
    const outputStartMs = this.#parts.now();
    if (startMs === undefined) return { outcomes, inputEndMs, outputStartMs };
    return { outcomes, startMs, inputEndMs, outputStartMs };
  }
}

/** A batch that has not begun is as if it had not been sent. */
function giveUp({ lives, resolve }: Batch): void {
  for (const live of lives) live?.close();
  resolve(undefined);
}

/** What became of a request when its batch was through. */
function finishRequest(live: LiveRequest, response: ExecuteResponse | undefined): ExecuteOutcome {
  if (response === undefined) return { streamed: true };
  if (live.isOver) {
    // Its sender has said everything.
    releaseResponse(response);
    return { streamed: true };
  }
  if (live.isSent) {
    live.receive(response, true);
    return { streamed: true };
  }
  live.close();
  return response;
}
