import { ServerError } from "../../proto/status.ts";
import { elementCount } from "../../proto/tensor.ts";
import type { CallGate } from "../../ffi/call_gate.ts";
import { watchAborts } from "../abort_watch.ts";
import type {
  BackendLog,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import { joinBytes, joinedByteSize } from "../batch.ts";
import {
  type BatchRunner,
  cancelledWhileExecuted,
  executeBatch,
  type FailedRun,
} from "../onnx_execute_batch.ts";
import {
  type MergedInput,
  mergeInputs,
  type MergeTarget,
  wantedOutputs,
} from "../onnx_merge_inputs.ts";
import { shareOutputs } from "../onnx_share_outputs.ts";
import type { CollectedOutput } from "../onnx_split_output.ts";
import { RestartPace } from "../restart_pace.ts";
import type { WebSession } from "./web_session.ts";
import { runtimeTypeName } from "./web_signature.ts";
import type { WireTensor } from "./worker_protocol.ts";

/** A run cannot be stopped; one that nobody waits for longer than this costs the Worker. */
const ABANDONED_RUN_MS = 5_000;
/** A run on a GPU keeps all others from it: it may not take longer. */
const GPU_RUN_TIMEOUT_MS = 120_000;
/** Requests wait for a Worker that is about to be started again within this time, else they fail at once. */
const MAX_WAIT_MS = 1_000;

/** What an instance is made of. */
export interface WebInstanceParts extends MergeTarget {
  readonly now: () => number;
  readonly log: BackendLog;
  readonly countBatchRetry: () => void;
  /** Loads the model once more. */
  readonly openSession: () => Promise<WebSession>;
  /** One run at a time per GPU; undefined on the CPU. */
  readonly gate: CallGate | undefined;
}

/** A model instance: a Worker with a session, started again when it ends. */
export class WebInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: WebInstanceParts;
  readonly #runner: BatchRunner;
  readonly #pace = new RestartPace();
  #session: WebSession | undefined;
  #endReason = "";
  /** Settles when a start that requests may wait for has succeeded or failed. */
  #starting: Promise<void> | undefined;
  #restartTimer: ReturnType<typeof setTimeout> | undefined;
  #isDisposed = false;

  constructor(parts: WebInstanceParts, placement: InstancePlacement, session: WebSession) {
    this.placement = placement;
    this.#parts = parts;
    const { plan, now, countBatchRetry } = parts;
    this.#runner = { plan, now, countBatchRetry, run: (requests) => this.#run(requests) };
    this.#use(session);
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    if (this.#session === undefined) await this.#starting;
    return await executeBatch(this.#runner, requests);
  }

  isReady(): Promise<{ readonly isReady: boolean; readonly reason?: string }> {
    if (this.#session !== undefined) return Promise.resolve({ isReady: true });
    const reason = `Worker of '${this.placement.name}' is not healthy: ${this.#endReason}`;
    return Promise.resolve({ isReady: false, reason });
  }

  async #run(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | FailedRun> {
    const { now, plan } = this.#parts;
    let inputEndMs = 0;
    let outputStartMs = 0;
    try {
      const names = wantedOutputs(requests);
      const inputs = mergeInputs(this.#parts, requests).map(toWire);
      inputEndMs = now();
      const outputs = await this.#runSession(requests, inputs, names);
      outputStartMs = now();
      const results = outputs.map((output) => this.#collect(output));
      return { outcomes: shareOutputs(plan, results, requests), inputEndMs, outputStartMs };
    } catch (reason) {
      const end = now();
      return {
        error: ServerError.from(reason),
        inputEndMs: inputEndMs || end,
        outputStartMs: outputStartMs || end,
      };
    }
  }

  async #runSession(
    requests: readonly ExecuteRequest[],
    inputs: readonly WireTensor[],
    names: readonly string[],
  ): Promise<readonly WireTensor[]> {
    const { gate } = this.#parts;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const aborts = watchAborts(requests, () => {
      timer ??= this.#endLater("a run that nobody waits for any more", ABANDONED_RUN_MS);
    });
    let limit: ReturnType<typeof setTimeout> | undefined;
    try {
      const turn = gate?.enter();
      if (turn !== undefined) await turn;
      try {
        if (aborts.areAll()) throw cancelledWhileExecuted();
        const session = this.#session;
        if (session === undefined) throw this.#unhealthy();
        if (gate !== undefined) limit = this.#endLater("a run on a GPU", GPU_RUN_TIMEOUT_MS);
        return await session.run(inputs, names);
      } finally {
        gate?.leave();
      }
    } catch (reason) {
      throw aborts.areAll() ? cancelledWhileExecuted() : reason;
    } finally {
      aborts.end();
      clearTimeout(timer);
      clearTimeout(limit);
    }
  }

  #endLater(what: string, limitMs: number): ReturnType<typeof setTimeout> {
    const session = this.#session;
    return setTimeout(() => session?.end(`${what} took longer than ${limitMs / 1000} s`), limitMs);
  }

  #collect({ name, type, dims, data }: WireTensor): CollectedOutput {
    const plan = this.#parts.plan.outputs.get(name)!;
    if (type !== runtimeTypeName(plan.elementType)) {
      throw new ServerError("INTERNAL", `output '${name}' has another datatype than declared`);
    }
    elementCount(dims, `output '${name}'`);
    const { datatype } = plan;
    const tensor = { name, datatype, shape: dims, data: new Uint8Array(data) };
    return { tensor, release: undefined };
  }

  #unhealthy(): ServerError {
    return new ServerError(
      "UNAVAILABLE",
      `instance '${this.placement.name}' is not healthy, its Worker ended: ${this.#endReason}`,
    );
  }

  #use(session: WebSession): void {
    this.#session = session;
    session.onEnd = (reason) => {
      this.#session = undefined;
      this.#endReason = reason;
      if (this.#isDisposed) return;
      const { name } = this.placement;
      this.#parts.log.error(`Worker of model instance '${name}' ended: ${reason}`);
      this.#scheduleRestart();
    };
  }

  #scheduleRestart(): void {
    const { log, now } = this.#parts;
    const { name } = this.placement;
    const delayMs = this.#pace.fail(now());
    if (delayMs === undefined) {
      log.error(`Worker of model instance '${name}' ends again and again, it stays down`);
      this.#starting = undefined;
      return;
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#starting = delayMs <= MAX_WAIT_MS ? promise : undefined;
    this.#restartTimer = setTimeout(() => void this.#restart().then(resolve), delayMs);
  }

  async #restart(): Promise<void> {
    const { log, openSession } = this.#parts;
    const { name } = this.placement;
    try {
      const session = await openSession();
      if (this.#isDisposed) return session[Symbol.dispose]();
      this.#use(session);
      this.#starting = undefined;
      log.info(`Worker of model instance '${name}' was started again`);
    } catch (reason) {
      if (this.#isDisposed) return;
      this.#endReason = ServerError.from(reason).message;
      log.error(`Worker of model instance '${name}' cannot be started again: ${this.#endReason}`);
      this.#scheduleRestart();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#isDisposed = true;
    clearTimeout(this.#restartTimer);
    this.#session?.[Symbol.dispose]();
    this.#session = undefined;
    return Promise.resolve();
  }
}

/** Joins the parts of an input in a buffer for the way to the Worker. @throws ServerError INVALID_ARG for its size. */
function toWire({ plan, parts, shape }: MergedInput): WireTensor {
  const byteSize = parts.length === 1 ? parts[0]!.data.byteLength : joinedByteSize(parts);
  const expected = shape.reduce((product, dim) => product * dim, plan.elementSize);
  if (plan.elementSize !== 0 && byteSize !== expected) {
    throw new ServerError(
      "INVALID_ARG",
      `input '${plan.name}' has ${byteSize} bytes, its shape and datatype tell ${expected}`,
    );
  }
  const data = new Uint8Array(byteSize);
  joinBytes(parts, data);
  const type = runtimeTypeName(plan.elementType);
  return { name: plan.name, type, dims: shape, data: data.buffer };
}
