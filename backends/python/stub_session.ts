import { ServerError } from "../../proto/status.ts";
import type { BackendLog, ExecuteReport, ExecuteRequest, ModelHost } from "../backend.ts";
import { executeError } from "./execute_error.ts";
import { HostCalls, type HostCallsParts } from "./host_calls.ts";
import { HostMetrics } from "./host_metrics.ts";
import { IsReadyQuery, type Readiness } from "./is_ready_query.ts";
import { SYSTEM_TIMERS } from "../pause.ts";
import { readFrames } from "../process/read_frames.ts";
import { clipText } from "../process/wire_values.ts";
import { RunningBatches } from "./running_batches.ts";
import { createFramePort, type FramePort, sendFree } from "../process/stub_link.ts";
import { writeLog } from "../process/stub_log.ts";
import { type MemoryLimits, StubMemory } from "../process/stub_memory.ts";
import { type StubCommand, StubProcess } from "../process/stub_process.ts";
import type { Frame } from "../process/frame.ts";
import { FRAME } from "./stub_wire.ts";

/** What a process is told of the model that it runs (wire.md, HELLO). */
export interface StubModel {
  readonly path: string;
  readonly module: string;
  readonly modelDirectory: string;
  readonly versionDirectory: string;
  readonly name: string;
  readonly instance: string;
  readonly decoupled: boolean;
  readonly outputs: readonly string[];
}

/** What a session works with. */
export interface SessionParts {
  readonly command: Omit<StubCommand, "onFurtherConnection">;
  readonly model: StubModel;
  readonly limits: MemoryLimits;
  readonly host: ModelHost;
  readonly log: BackendLog;
  readonly now: () => number;
}

/** Connections of processes that a model made; it is answered on so many at most. */
const FURTHER_CONNECTION_COUNT_MAX = 256;

/** So long what a dead process has sent is still read. */
const LAST_FRAMES_MS = 20;

/** A process with a model, from its start to its end: everything that passes between it and the server. */
export class StubSession {
  /** Settles when nothing of the process is left; tells how it ended. */
  readonly ended: Promise<string>;
  readonly #parts: SessionParts;
  readonly #process: StubProcess;
  readonly #memory: StubMemory;
  readonly #main: FramePort;
  readonly #aside: FramePort;
  readonly #batches: RunningBatches;
  readonly #metrics: HostMetrics;
  readonly #calls: HostCalls;
  readonly #readiness: IsReadyQuery;
  readonly #further = new Set<Deno.UnixConn>();
  /** Waits for a frame of a kind. */
  readonly #awaited = new Map<number, PromiseWithResolvers<Frame>>();
  #verboseLevel: number;
  #failure: string | undefined;
  #isOver = false;

  private constructor(parts: SessionParts, process: StubProcess) {
    this.#parts = parts;
    this.#process = process;
    const memory = this.#memory = new StubMemory(parts.limits);
    // A connection that takes nothing more is that of a dead process; too much to be read is its fault.
    const fail = (reason: unknown) =>
      reason instanceof RangeError ? this.#fail(reason) : this.kill("");
    this.#main = createFramePort(process.connection("A"), memory, fail);
    const aside = this.#aside = createFramePort(process.connection("B"), memory, fail);
    memory.sendFree = () => sendFree(aside);
    this.#batches = new RunningBatches({ main: this.#main, aside, memory, now: parts.now });
    this.#metrics = new HostMetrics(parts.host);
    this.#calls = new HostCalls(this.#callParts(aside, memory));
    this.#readiness = new IsReadyQuery(aside, parts.model.instance);
    this.#verboseLevel = verboseLevel(parts.log);
    this.ended = this.#run();
  }

  /** Starts a process and comes to terms with it. @throws ServerError; nothing of it is left then. */
  static async start(parts: SessionParts): Promise<StubSession> {
    const started: { session?: StubSession } = {};
    const process = await StubProcess.start({
      ...parts.command,
      onFurtherConnection: (connection) => {
        if (started.session === undefined) connection.close();
        else void started.session.#serveFurther(connection);
      },
    });
    const session = started.session = new StubSession(parts, process);
    try {
      await session.#greet();
      return session;
    } catch (reason) {
      session.kill("");
      await session.ended;
      throw ServerError.from(reason);
    }
  }

  get pid(): number {
    return this.#process.pid;
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** The configuration after `auto_complete_config`. @throws ServerError with the model's own words. */
  async autoComplete(config: unknown): Promise<unknown> {
    const answer = this.#await(FRAME.autoCompleted);
    this.#main.send(FRAME.autoComplete, 0, { config });
    const { error, config: completed } = (await answer).json;
    if (error !== undefined) throw new ServerError("INTERNAL", clipText(String(error)));
    return completed;
  }

  /** Runs `initialize`; tells whether the model has an `is_ready`. @throws ServerError with the model's own words. */
  async initialize(args: Readonly<Record<string, string>>): Promise<{ hasIsReady: boolean }> {
    const answer = this.#await(FRAME.initialized);
    this.#main.send(FRAME.initialize, 0, { args });
    const { error, isReady } = (await answer).json;
    if (error !== undefined) throw new ServerError("INTERNAL", clipText(String(error)));
    return { hasIsReady: isReady === true };
  }

  /** Whether a request may be sent behind those that run (`ModelInstance.takesAhead`). */
  takesAhead(request: ExecuteRequest): boolean {
    return !this.#isOver && !this.#parts.model.decoupled && this.#batches.takesAhead(request);
  }

  /** Runs a batch. Never rejects; undefined when the process ended before it began. The session is not over. */
  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | undefined> {
    const level = verboseLevel(this.#parts.log);
    if (level !== this.#verboseLevel) {
      this.#verboseLevel = level;
      // On the way of the batch, so that it holds for it.
      this.#main.send(FRAME.logLevel, 0, { verbose: level });
    }
    return this.#batches.execute(requests);
  }

  /** Asks the model whether it is ready. Never rejects. */
  isReady(): Promise<Readiness> {
    return this.#readiness.ask();
  }

  /** Runs `finalize` and waits for the end; kills the process that takes longer. */
  async finalize(timeoutMs: number): Promise<void> {
    const timer = SYSTEM_TIMERS.setTimer(
      timeoutMs,
      () => this.kill(`finalize() did not return within ${timeoutMs} ms`),
    );
    try {
      this.#main.send(FRAME.finalize, 0);
      await this.ended;
    } finally {
      timer.cancel();
    }
  }

  /** Ends the process at once. `reason` is told to those who wait for an answer; "" = no reason. */
  kill(reason: string): void {
    this.#failure ??= reason;
    this.#process.kill();
  }

  async #run(): Promise<string> {
    const reading = readFrames(this.#process.connection("A"), (frame) => this.#take(frame));
    // The process writes nothing there; what can be read is its end.
    const aside = this.#process.connection("B");
    const watching = aside.read(new Uint8Array(1)).then(() => undefined, () => undefined);
    const reason = await Promise.race([reading, watching, this.#process.ended.then(() => {})]);
    if (reason !== undefined) this.#fail(reason);
    this.#process.kill();
    // What it has answered tells which batches had begun; those that had must not run again.
    if (this.#batches.hasAhead) await settledWithin(reading, LAST_FRAMES_MS);
    this.#end();
    const how = await this.#process.ended;
    this.#process.close();
    return this.#failure === undefined || this.#failure === "" ? how : this.#failure;
  }

  #callParts(port: FramePort, memory: StubMemory): HostCallsParts {
    const { host } = this.#parts;
    return {
      host,
      memory,
      port,
      metrics: this.#metrics,
      get peer() {
        return memory.peer;
      },
      traceOf: (number) => this.#batches.find(number as number)?.trace,
    };
  }

  async #greet(): Promise<void> {
    const { model, limits, command } = this.#parts;
    const segment = this.#memory.offer();
    const answer = this.#await(FRAME.helloResult);
    const { connectTimeoutMs } = command;
    const timer = SYSTEM_TIMERS.setTimer(
      connectTimeoutMs,
      () => this.kill(`no word within ${connectTimeoutMs} ms`),
    );
    try {
      this.#main.send(FRAME.hello, 0, {
        pid: Deno.pid,
        segment: segment ?? -1,
        memory: segment !== undefined,
        model,
        log: this.#verboseLevel,
        limits: { growth: limits.growthByteSize, max: limits.maxByteSize },
      });
      const { pid, memory, error } = (await answer).json;
      if (error !== undefined) throw new ServerError("INTERNAL", clipText(String(error)));
      this.#memory.agree({ pid: Number(pid), isShared: memory === true });
    } finally {
      timer.cancel();
    }
  }

  #take(frame: Frame): void {
    const { f: returned } = frame.json;
    if (returned !== undefined) this.#memory.takeBack(returned);
    switch (frame.kind) {
      case FRAME.executed:
        return this.#batches.executed(frame);
      case FRAME.send:
        return this.#batches.sent(frame);
      case FRAME.dropped:
        return this.#batches.dropped(frame);
      case FRAME.log:
        return writeLog(this.#parts.log, frame);
      case FRAME.ready:
        return this.#readiness.answered(frame);
      case FRAME.free:
      case FRAME.finalized:
        return;
    }
    if (this.#calls.take(frame)) return;
    const awaited = this.#awaited.get(frame.kind);
    if (awaited === undefined) throw new RangeError(`Frame of kind ${frame.kind} is not expected`);
    this.#awaited.delete(frame.kind);
    awaited.resolve(frame);
  }

  #await(kind: number): Promise<Frame> {
    const awaited = Promise.withResolvers<Frame>();
    if (this.#isOver) awaited.reject(this.#deathError());
    else this.#awaited.set(kind, awaited);
    return awaited.promise;
  }

  /** The process does not keep to the protocol. */
  #fail(reason: unknown): void {
    if (this.#isOver) return;
    const text = reason instanceof Error ? reason.message : String(reason);
    this.#parts.log.error(
      `process of '${this.#parts.model.instance}' (pid ${this.pid}) is ended: it does not keep ` +
        `to the protocol with the server: ${text}`,
    );
    this.kill("");
  }

  #end(): void {
    this.#isOver = true;
    const error = this.#deathError();
    for (const { reject } of this.#awaited.values()) reject(error);
    this.#awaited.clear();
    const { instance } = this.#parts.model;
    this.#batches.failAll(executeError(instance, error.message));
    this.#readiness.close(error.message);
    this.#calls.close();
    for (const connection of this.#further) connection.close();
    this.#metrics.close();
    this.#memory.close();
  }

  #deathError(): ServerError {
    const { instance } = this.#parts.model;
    const more = this.#failure === undefined || this.#failure === "" ? "." : `: ${this.#failure}.`;
    return new ServerError("INTERNAL", `Stub process '${instance}' is not healthy${more}`);
  }

  /** Answers a process that the model made, until it ends the connection. */
  async #serveFurther(connection: Deno.UnixConn): Promise<void> {
    if (this.#isOver || this.#further.size >= FURTHER_CONNECTION_COUNT_MAX) {
      connection.close();
      return;
    }
    this.#further.add(connection);
    const port = createFramePort(connection, this.#memory, () => {});
    const calls = new HostCalls({ ...this.#callParts(port, this.#memory), peer: undefined });
    await readFrames(connection, (frame) => {
      const { f: returned } = frame.json;
      if (returned !== undefined) this.#memory.takeBack(returned);
      if (!calls.take(frame)) throw new RangeError(`Frame of kind ${frame.kind} is not expected`);
    });
    calls.close();
    if (this.#further.delete(connection)) closeQuietly(connection);
  }
}

async function settledWithin(settling: Promise<unknown>, timeMs: number): Promise<void> {
  const waited = Promise.withResolvers<void>();
  const timer = setTimeout(waited.resolve, timeMs);
  await Promise.race([settling, waited.promise]);
  clearTimeout(timer);
}

function closeQuietly(connection: Deno.UnixConn): void {
  try {
    connection.close();
  } catch {
    // Closed before.
  }
}

function verboseLevel(log: BackendLog): number {
  return log.isVerbose?.(1) === true ? 1 : 0;
}
