import type { InferInput, InferRequest, InferResponse } from "../../../proto/infer.ts";
import type { ResponseReceiver } from "../inference_api.ts";
import type { Job } from "../scheduler/job.ts";
import type { BoundStep, StepCallOptions } from "./bound_step.ts";
import { convertTensor } from "./ensemble_shape.ts";
import {
  type EnsembleValue,
  type EnsembleValues,
  mergeSequence,
  type SequenceOverride,
} from "./ensemble_values.ts";
import { SharedBuffers } from "./shared_buffers.ts";

/** A decoupled call is asked to wait while so many requests of the steps behind it are not over. */
const FOLLOWERS_HELD = 1024;
/** A model that does not wait may not cause more. */
const FOLLOWERS_MAX = 65_536;

/** One request of a step. */
export class StepCall {
  readonly bound: BoundStep;
  readonly iteration: number;
  /** The buffers of the inputs: in use by the call and by all its responses, which may be views of them. */
  readonly buffers: SharedBuffers;
  readonly #sequence: SequenceOverride | undefined;
  /** The nearest decoupled call before this one: it goes on as fast as what it causes. */
  readonly #source: StepCall | undefined;
  /** Calls that have this one as source and are not over, with all that they caused. */
  #followerCount = 0;
  #isOver = false;
  #request: InferRequest | undefined;
  #holdCount = 0;
  #freed: PromiseWithResolvers<void> | undefined;
  #isEnded = false;

  /** Takes the inputs of the step out of the values. @param cause the call whose response made this one possible. */
  constructor(
    bound: BoundStep,
    iteration: number,
    job: Job,
    values: EnsembleValues,
    cause: StepCall | undefined,
  ) {
    this.bound = bound;
    this.iteration = iteration;
    if (cause !== undefined) this.#source = cause.bound.isDecoupled ? cause : cause.#source;
    if (this.#source !== undefined) this.#source.#followerCount++;
    const taken = new Map<string, EnsembleValue>();
    const inputs: InferInput[] = [];
    let sequence: SequenceOverride | undefined;
    for (const [index, { outer }] of bound.step.inputs.entries()) {
      let value = taken.get(outer);
      if (value === undefined) taken.set(outer, value = values.take(outer, iteration));
      sequence = mergeSequence(sequence, value.sequence);
      // An input that was not given is not given to the step.
      if (value.tensor === undefined) continue;
      inputs.push(convertTensor(value.tensor, value.isBatched, bound.inputs[index]!));
    }
    this.#sequence = sequence;
    this.#request = createRequest(bound, job, inputs, sequence);
    this.buffers = new SharedBuffers(() => {
      for (const { buffers } of taken.values()) buffers?.release();
    });
  }

  /** Runs the request; never throws. */
  run(receive: ResponseReceiver, options: StepCallOptions): Promise<void> {
    const request = this.#request!;
    this.#request = undefined;
    try {
      return this.bound.model.inferStream(request, receive, options);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** What the sequence is for the steps behind this one. */
  sequenceAfter({ parameters }: InferResponse): SequenceOverride | undefined {
    const {
      sequence_id: correlationId,
      sequence_start: sequenceStart,
      sequence_end: sequenceEnd,
    } = parameters;
    const hasId = typeof correlationId === "bigint" || typeof correlationId === "string";
    if (!hasId && typeof sequenceStart !== "boolean" && typeof sequenceEnd !== "boolean") {
      return this.#sequence;
    }
    return {
      ...this.#sequence,
      ...(hasId ? { correlationId } : {}),
      ...(typeof sequenceStart === "boolean" ? { sequenceStart } : {}),
      ...(typeof sequenceEnd === "boolean" ? { sequenceEnd } : {}),
    };
  }

  /** A step behind this one waits for its turn because of a response of this call. */
  hold(): void {
    this.#holdCount++;
  }

  unhold(): void {
    if (--this.#holdCount > 0) return;
    this.#goOn();
    if (this.#isEnded) this.bound.gate?.leave();
  }

  /** The call caused more than a model may that does not wait when it is asked to. */
  get isFlooding(): boolean {
    return this.#followerCount > FOLLOWERS_MAX;
  }

  /** Settles when no step waits because of this call, and not too many run; undefined = that is so. */
  held(): Promise<void> | undefined {
    if (this.#holdCount === 0 && this.#followerCount < FOLLOWERS_HELD) return undefined;
    this.#freed ??= Promise.withResolvers<void>();
    return this.#freed.promise;
  }

  /** The call is over, and has started what it caused: with the last of that its source may go on. */
  leaveSource(): void {
    this.#isOver = true;
    this.#leaveIfOver();
  }

  #leaveIfOver(): void {
    const source = this.#source;
    if (!this.#isOver || this.#followerCount > 0 || source === undefined) return;
    source.#followerCount--;
    source.#goOn();
    source.#leaveIfOver();
  }

  #goOn(): void {
    if (this.#holdCount > 0 || this.#followerCount > FOLLOWERS_HELD / 2) return;
    this.#freed?.resolve();
    this.#freed = undefined;
  }

  /** The call is over: its place is free when what it caused has found one. */
  leaveGate(): void {
    this.#isEnded = true;
    if (this.#holdCount === 0) this.bound.gate?.leave();
  }
}

function createRequest(
  { step, model }: BoundStep,
  job: Job,
  inputs: readonly InferInput[],
  sequence: SequenceOverride | undefined,
): InferRequest {
  return {
    modelName: step.modelName,
    modelVersion: model.versionText,
    id: job.id,
    correlationId: sequence?.correlationId ?? job.correlationId,
    sequenceStart: sequence?.sequenceStart ?? job.sequenceStart,
    sequenceEnd: sequence?.sequenceEnd ?? job.sequenceEnd,
    priority: job.priority,
    timeoutUs: job.timeoutUs,
    parameters: job.parameters,
    inputs,
    outputs: step.outputs.map(({ inner }) => ({ name: inner, classificationCount: 0 })),
  };
}
