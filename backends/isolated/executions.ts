import { ServerError } from "../../proto/status.ts";
import type { ExecuteOutcome, ExecuteReport, ExecuteRequest } from "../backend.ts";
import type { Frame } from "../process/frame.ts";
import { LiveRequest, type LiveRequestOwner, releaseResponse } from "../process/live_request.ts";
import { NumberedTable } from "../process/numbered_table.ts";
import type { FramePort } from "../process/stub_link.ts";
import type { StubMemory } from "../process/stub_memory.ts";
import type { TensorWriter } from "../process/tensor_wire.ts";
import { AheadPace } from "./ahead_pace.ts";
import { FRAME } from "./isolated_wire.ts";
import { readOutcome, readResponse, releaseOutcome } from "./outcome_wire.ts";
import { type WireRequest, wireRequest } from "./request_wire.ts";

const ACTIVITY_LENGTH_MAX = 256;

/** What batches are run with. */
export interface ExecutionsParts {
  readonly port: FramePort;
  readonly memory: StubMemory;
  readonly now: () => number;
  /** No batch runs any more. */
  readonly onIdle: () => void;
}

interface Batch {
  /** By position of the request; an outcome = refused before. */
  readonly entries: readonly (LiveRequest | ExecuteOutcome)[];
  readonly sentMs: number;
  /** It waited behind others. */
  readonly isAhead: boolean;
  readonly resolve: (report: ExecuteReport | undefined) => void;
}

/** Batches that a process runs, and requests that it has not answered to the end. */
export class Executions {
  readonly #parts: ExecutionsParts;
  readonly #batches = new NumberedTable<Batch>();
  readonly #lives = new NumberedTable<LiveRequest>();
  readonly #owner: LiveRequestOwner;
  readonly #pace: AheadPace;

  constructor(parts: ExecutionsParts) {
    this.#parts = parts;
    const { port } = parts;
    this.#pace = new AheadPace(parts.now);
    this.#owner = {
      credit: (number, n) => port.send(FRAME.credit, number, { n }),
      cancelled: (number) => port.send(FRAME.cancelled, number),
      closed: (number) => void this.#lives.delete(number),
    };
  }

  /** Batches that run or wait. */
  get batchCount(): number {
    return this.#batches.size;
  }

  /** Requests that have not had their final response. */
  get liveCount(): number {
    return this.#lives.size;
  }

  /** Whether a request may be sent behind the batches that run. */
  takesAhead(request: ExecuteRequest): boolean {
    return this.#pace.takes(request, this.#batches.size);
  }

  /** Runs a batch. Never rejects; undefined when the process ended before it began. */
  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | undefined> {
    const { memory, now } = this.#parts;
    const writer = memory.writer();
    const wires: WireRequest[] = [];
    const entries = requests.map((request): LiveRequest | ExecuteOutcome => {
      try {
        const tensors = writer.writeAll(request.inputs);
        const live = new LiveRequest(request, this.#lives.nextNumber(), this.#owner);
        this.#lives.set(live.number, live);
        wires.push(wireRequest(request, live.number, tensors));
        return live;
      } catch (reason) {
        return { error: ServerError.from(reason) };
      }
    });
    return new Promise((resolve) => {
      const isAhead = this.#batches.size > 0;
      const batch = { entries, sentMs: now(), isAhead, resolve };
      if (wires.length === 0) resolve(this.#failure(batch, undefined));
      else this.#send(batch, wires, writer);
    });
  }

  #send(batch: Batch, wires: readonly WireRequest[], writer: TensorWriter): void {
    const number = this.#batches.nextNumber();
    const { port } = this.#parts;
    this.#batches.set(number, batch);
    try {
      port.send(FRAME.execute, number, { r: wires }, writer.payload);
    } catch (reason) {
      writer.discard();
      this.#batches.delete(number);
      batch.resolve(this.#failure(batch, ServerError.from(reason)));
      return;
    }
    if (!batch.isAhead) this.#pace.begun();
    for (const entry of batch.entries) {
      if (entry instanceof LiveRequest && entry.request.signal?.aborted) {
        this.#owner.cancelled(entry.number);
      }
    }
  }

  /** EXECUTED. @throws RangeError, SyntaxError for what cannot be; the batch then runs on. */
  executed({ id, json, payload }: Frame): void {
    const batch = this.#batches.get(id);
    if (batch === undefined) throw new RangeError(`Batch ${id} does not run`);
    const { r: results, u: times } = json;
    const sentCount = batch.entries.filter((entry) => entry instanceof LiveRequest).length;
    if (!Array.isArray(results) || results.length !== sentCount) {
      throw new RangeError(`Expected ${sentCount} outcomes of batch ${id}`);
    }
    const [total, inputEnd, outputStart] = readTimes(times);
    const outcomes = this.#readOutcomes(results, payload);
    this.#batches.delete(id);
    const endMs = this.#parts.now();
    this.#pace.ended(total);
    // Counted back from now: the clock of the process is another one.
    const beginMs = Math.max(batch.sentMs, endMs - total);
    const place = (ms: number) => Math.min(beginMs + ms, endMs);
    const inputEndMs = place(inputEnd);
    const outputStartMs = Math.max(inputEndMs, place(outputStart));
    const start = batch.isAhead ? { startMs: beginMs } : {};
    this.#finish(batch, outcomes, { ...start, inputEndMs, outputStartMs });
    if (this.#batches.size === 0) this.#parts.onIdle();
  }

  /** SEND. @throws RangeError, SyntaxError */
  sent({ id, json, payload }: Frame): void {
    const { r: wire, l: isLast, u: ageUs } = json;
    const { memory } = this.#parts;
    const response = wire === undefined
      ? undefined
      : readResponse(wire, { payload, peer: memory.peer }, memory.giveBack);
    const live = this.#lives.get(id);
    if (live === undefined) return releaseResponse(response);
    const sent = response === undefined
      ? undefined
      : { ...response, outputStartMs: this.#ago(ageUs) };
    live.receive(sent, isLast === true);
  }

  /** MARK. */
  marked({ id, json: { a: activity, u: ageUs } }: Frame): void {
    if (typeof activity !== "string" || activity.length > ACTIVITY_LENGTH_MAX) return;
    this.#lives.get(id)?.request.trace?.mark(activity, this.#ago(ageUs));
  }

  /** So many microseconds ago, now when it is not told. */
  #ago(ageUs: unknown): number {
    const ageMs = typeof ageUs === "number" && ageUs >= 0 ? ageUs / 1000 : 0;
    return this.#parts.now() - ageMs;
  }

  /** Ends everything: the process is gone. */
  failAll(error: ServerError): void {
    const batches = this.#batches.values();
    this.#batches.clear();
    // The process takes one after the other, so only the first has begun.
    batches.forEach((batch, index) => {
      if (index === 0) return batch.resolve(this.#failure(batch, error));
      for (const entry of batch.entries) if (entry instanceof LiveRequest) entry.close();
      batch.resolve(undefined);
    });
    for (const live of this.#lives.values()) live.receive({ error }, true);
  }

  #readOutcomes(results: readonly unknown[], payload: Uint8Array): ExecuteOutcome[] {
    const { memory } = this.#parts;
    const place = { payload, peer: memory.peer };
    const outcomes: ExecuteOutcome[] = [];
    try {
      for (const result of results) outcomes.push(readOutcome(result, place, memory.giveBack));
      return outcomes;
    } catch (error) {
      for (const outcome of outcomes) releaseOutcome(outcome);
      throw error;
    }
  }

  #finish(
    { entries, resolve }: Batch,
    results: readonly ExecuteOutcome[],
    times: Omit<ExecuteReport, "outcomes">,
  ): void {
    let next = 0;
    const waits: Promise<void>[] = [];
    const outcomes = entries.map((entry): ExecuteOutcome => {
      if (!(entry instanceof LiveRequest)) return entry;
      const outcome = results[next++]!;
      if (!("streamed" in outcome)) return finishRequest(entry, outcome);
      if (outcome.reschedule !== true) return outcome;
      entry.close();
      // What was sent of this turn goes before what the next one sends.
      if (entry.taken !== undefined) waits.push(entry.taken);
      return outcome;
    });
    const report = { outcomes, ...times };
    if (waits.length === 0) resolve(report);
    else void Promise.all(waits).then(() => resolve(report));
  }

  /** What is told of a batch that failed as a whole; `error` undefined = each request was refused before. */
  #failure({ entries }: Batch, error: ServerError | undefined): ExecuteReport {
    const outcomes = entries.map((entry): ExecuteOutcome =>
      entry instanceof LiveRequest ? finishRequest(entry, { error: error! }) : entry
    );
    const now = this.#parts.now();
    return { outcomes, inputEndMs: now, outputStartMs: now };
  }
}

/** What became of a request that is over with its batch. */
function finishRequest(
  live: LiveRequest,
  outcome: Exclude<ExecuteOutcome, { streamed: true }>,
): ExecuteOutcome {
  if (live.isOver) {
    // Its sender has said everything.
    releaseOutcome(outcome);
    return { streamed: true };
  }
  if (live.isSent) {
    live.receive(outcome, true);
    return { streamed: true };
  }
  live.close();
  return outcome;
}

/** `[total, inputs in place, outputs begun]` in ms. @throws RangeError */
function readTimes(times: unknown): readonly [number, number, number] {
  const isList = Array.isArray(times) && times.length === 3 &&
    times.every((time) => typeof time === "number" && time >= 0);
  if (!isList) throw new RangeError("Expected three times of a batch");
  const [total, inputEnd, outputStart] = times as [number, number, number];
  return [total / 1000, inputEnd / 1000, outputStart / 1000];
}
