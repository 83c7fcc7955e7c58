import type { ExecuteResponse } from "../../../backends/backend.ts";
import type { InferResponse } from "../../../proto/infer.ts";
import { ServerError } from "../../../proto/status.ts";
import type { StreamedResponse } from "../inference_api.ts";
import {
  cancelledError,
  type ComputeSums,
  type Job,
  releaseOutputs,
  requestPrefix,
} from "../scheduler/job.ts";
import type { BoundStep } from "./bound_step.ts";
import {
  countLaterUses,
  type EnsembleGraph,
  type EnsembleStep,
  type NeededSteps,
  selectNeededSteps,
} from "./ensemble_graph.ts";
import { createEnsembleResponse, type EnsembleOutputs } from "./ensemble_response.ts";
import { EnsembleValues } from "./ensemble_values.ts";
import { RunSignal } from "./run_signal.ts";
import { SharedBuffers } from "./shared_buffers.ts";
import { StepCall } from "./step_call.ts";

/** What all requests of an ensemble have in common. */
export interface EnsembleRunParts {
  readonly name: string;
  readonly graph: EnsembleGraph;
  readonly boundSteps: readonly BoundStep[];
  readonly outputs: EnsembleOutputs;
  /** The ensemble itself batches. */
  readonly isBatched: boolean;
  readonly inputNames: readonly string[];
  readonly isDecoupled: boolean;
  /** A requested output is left out of a response because the steps did not give it. */
  readonly onAbsentOutput: (name: string, job: Job) => void;
}

/** How a request of an ensemble ended. */
export interface EnsembleEnd {
  readonly error: ServerError | undefined;
  /** The client had gone. */
  readonly isCancelled: boolean;
  readonly compute: ComputeSums;
}

/**
 * One request on its way through the steps of an ensemble (scheduling.md §5.2). It is over, and answers the job, when
 * no request of a step is in flight any more and none can be made.
 */
export class EnsembleRun {
  readonly #parts: EnsembleRunParts;
  readonly #job: Job;
  readonly #needed: NeededSteps;
  readonly #values: EnsembleValues;
  readonly #onEnd: (end: EnsembleEnd) => void;
  readonly #signal = new RunSignal();
  readonly #compute: ComputeSums = { inputMs: 0, inferMs: 0, outputMs: 0 };
  /** Calls of steps that wait for their turn, and how to give them up. */
  readonly #waiting = new Map<StepCall, () => void>();
  /** Responses of decoupled steps so far: each begins a new iteration. */
  readonly #responseCounts = new Map<BoundStep, number>();
  #inflightCount = 0;
  #error: ServerError | undefined;
  #isCancelled = false;
  #isOver = false;
  #isFinalSent = false;
  /** The response of an ensemble that is not decoupled, until all steps have ended. */
  #answer: ExecuteResponse | undefined;
  /** Settles when the client has taken what it got so far. */
  #clientHold: Promise<void> | undefined;

  constructor(parts: EnsembleRunParts, job: Job, onEnd: (end: EnsembleEnd) => void) {
    this.#parts = parts;
    this.#job = job;
    this.#onEnd = onEnd;
    this.#needed = selectNeededSteps(parts.graph, job.outputs);
    this.#values = new EnsembleValues(
      this.#needed.useCounts,
      parts.isDecoupled ? this.#laterUses() : undefined,
    );
  }

  /** Starts the steps that need nothing but the request. */
  start(): void {
    const given = new Map(this.#job.inputs.map((input) => [input.name, input]));
    const { inputNames, isBatched } = this.#parts;
    for (const name of inputNames) {
      const tensor = given.get(name);
      this.#values.add(name, 0, { tensor, isBatched, buffers: undefined, sequence: undefined });
    }
    this.#advance(inputNames, 0, undefined);
    this.#endIfIdle();
  }

  /** The client has gone: nothing is started any more, what runs is told to stop. */
  cancel(): void {
    if (this.#isOver) return;
    this.#isCancelled = true;
    this.#giveUp(cancelledError());
    this.#endIfIdle();
  }

  #laterUses(): ReadonlyMap<string, number> {
    const { graph, boundSteps } = this.#parts;
    const isDecoupled = ({ index }: EnsembleStep) => boundSteps[index]!.isDecoupled;
    return countLaterUses(graph, { needed: this.#needed, outputs: this.#job.outputs, isDecoupled });
  }

  /** New values of an iteration are there: starts the steps that now have all inputs, and answers when it can. */
  #advance(tensors: readonly string[], iteration: number, cause: StepCall | undefined): void {
    const { graph, boundSteps } = this.#parts;
    const candidates = new Set(tensors.flatMap((tensor) => graph.readers.get(tensor) ?? []));
    for (const step of candidates) {
      if (this.#error !== undefined) return;
      if (!this.#needed.steps.has(step)) continue;
      if (!step.inputs.every(({ outer }) => this.#values.has(outer, iteration))) continue;
      this.#prepare(boundSteps[step.index]!, iteration, cause);
    }
    const { outputs } = this.#job;
    if (this.#error !== undefined || !outputs.some((output) => tensors.includes(output))) return;
    if (outputs.every((output) => this.#values.has(output, iteration))) this.#respond(iteration);
  }

  #prepare(bound: BoundStep, iteration: number, cause: StepCall | undefined): void {
    const call = new StepCall(bound, iteration, this.#job, this.#values, cause);
    const { gate } = bound;
    if (gate === undefined || gate.tryEnter()) return this.#send(call);
    cause?.hold();
    const giveUp = gate.wait(() => {
      this.#waiting.delete(call);
      this.#send(call);
      cause?.unhold();
    });
    this.#waiting.set(call, () => {
      giveUp();
      call.buffers.release();
      call.leaveSource();
      cause?.unhold();
    });
  }

  #send(call: StepCall): void {
    this.#inflightCount++;
    let last: StreamedResponse | undefined;
    const receive = (message: StreamedResponse): Promise<void> | undefined => {
      // The end is handled when the model has really let go of the request.
      if (message.isFinal) last = message;
      else return this.#receive(call, message);
    };
    const trace = this.#job.trace?.createChild();
    call.run(receive, { signal: this.#signal, compute: this.#compute, trace }).then(
      () => this.#finishCall(call, last),
      (error) => this.#finishCall(call, { error: ServerError.from(error), isFinal: true }),
    );
  }

  #receive(call: StepCall, { response, error }: StreamedResponse): Promise<void> | undefined {
    if (error !== undefined) this.#fail(call, error);
    else if (response !== undefined) this.#store(call, response);
    if (call.isFlooding) this.#fail(call, floodError(call));
    if (this.#isOver || this.#error !== undefined) return undefined;
    const held = call.held();
    const client = this.#clientHold;
    if (held === undefined || client === undefined) return held ?? client;
    return Promise.all([held, client]).then(() => {});
  }

  #finishCall(call: StepCall, last: StreamedResponse | undefined): void {
    this.#inflightCount--;
    if (last?.error !== undefined) this.#fail(call, last.error);
    else if (last?.response !== undefined) this.#store(call, last.response);
    call.buffers.release();
    call.leaveSource();
    this.#endIfIdle();
    call.leaveGate();
  }

  /** Keeps the outputs of a response for the steps behind, or for the answer. */
  #store(call: StepCall, response: InferResponse): void {
    const { bound } = call;
    const { buffers: inputs } = call;
    inputs.retain();
    const buffers = new SharedBuffers(() => {
      bound.model.releaseResponse(response);
      inputs.release();
    });
    if (this.#error === undefined) {
      const iteration = this.#iterationOf(call);
      const stored: string[] = [];
      const sequence = call.sequenceAfter(response);
      for (const { inner, outer } of bound.step.outputs) {
        const tensor = response.outputs.find(({ name }) => name === inner);
        const { isBatched } = bound;
        const value = { tensor, isBatched, buffers: tensor && buffers, sequence };
        if (this.#values.add(outer, iteration, value)) stored.push(outer);
      }
      this.#advance(stored, iteration, call);
    }
    buffers.release();
  }

  #iterationOf({ bound, iteration }: StepCall): number {
    if (!bound.isDecoupled) return iteration;
    const count = this.#responseCounts.get(bound) ?? 0;
    this.#responseCounts.set(bound, count + 1);
    return count;
  }

  #respond(iteration: number): void {
    const taken = this.#job.outputs.map((name) => ({
      name,
      value: this.#values.take(name, iteration),
    }));
    for (const { name, value } of taken) {
      if (value.tensor === undefined) this.#parts.onAbsentOutput(name, this.#job);
    }
    const response = createEnsembleResponse(taken, this.#parts.outputs, this.#job);
    if (!this.#parts.isDecoupled) {
      this.#answer = response;
      return;
    }
    this.#isFinalSent = this.#inflightCount === 0 && this.#waiting.size === 0;
    const hold = this.#job.send(response, this.#isFinalSent);
    if (hold === undefined) return;
    this.#clientHold = hold;
    hold.then(() => {
      if (this.#clientHold === hold) this.#clientHold = undefined;
    });
  }

  #fail({ bound: { step } }: StepCall, { code, message }: ServerError): void {
    const place = `(step ${step.index}, model '${step.modelName}')`;
    this.#giveUp(
      new ServerError(code, `in ensemble '${this.#parts.name}', ${message} ${place}`),
    );
  }

  /** The first error counts; from then on nothing is started, and what runs is told to stop. */
  #giveUp(error: ServerError): void {
    if (this.#error !== undefined) return;
    this.#error = error;
    for (const giveUp of this.#waiting.values()) giveUp();
    this.#waiting.clear();
    this.#signal.abort();
  }

  #endIfIdle(): void {
    if (this.#isOver || this.#inflightCount > 0 || this.#waiting.size > 0) return;
    this.#isOver = true;
    this.#values.clear();
    const job = this.#job;
    if (!this.#parts.isDecoupled && this.#answer === undefined) this.#error ??= this.#deadlock();
    const error = this.#error;
    this.#onEnd({ error, isCancelled: this.#isCancelled, compute: this.#compute });
    if (error !== undefined) {
      if (this.#answer !== undefined) releaseOutputs(this.#answer);
      return job.finish({ error });
    }
    if (this.#parts.isDecoupled && !this.#isFinalSent) job.send(undefined, true);
    job.finish(this.#answer);
  }

  #deadlock(): ServerError {
    return new ServerError(
      "INVALID_ARG",
      `in ensemble '${this.#parts.name}', ${requestPrefix(this.#job.id)}unexpected deadlock, at ` +
        `least one output is not set while no more ensemble steps can be made`,
    );
  }
}

function floodError({ bound: { step } }: StepCall): ServerError {
  return new ServerError(
    "UNAVAILABLE",
    `model '${step.modelName}' sends responses without waiting for the steps behind it, and too ` +
      `many of them are not over`,
  );
}
