import type { ExecuteOutcome } from "../../../backends/backend.ts";
import type { ModelInstance } from "../../../backends/backend.ts";
import type { ModelSequenceBatching } from "../../../proto/gen/model_config_pb.ts";
import type { ServerError } from "../../../proto/status.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import type { Clock } from "../clock.ts";
import type { TensorRules } from "../tensor_rules.ts";
import { type BatchComparison, createBatchComparison } from "./batch_compare.ts";
import type { InstancePool, JobObserver } from "./instance_pool.ts";
import { cancelledError, type FailureReason, isRescheduled, type Job } from "./job.ts";
import { InflightCounter, type InstanceScheduler, type StopOptions } from "./scheduler.ts";
import { Sequence } from "./sequence.ts";
import {
  backlogTimeoutError,
  checkSequenceRequest,
  lacksId,
  notStartedError,
  sequenceStoppedError,
} from "./sequence_admission.ts";
import { SequenceBacklog } from "./sequence_backlog.ts";
import { SequenceControls } from "./sequence_controls.ts";
import { DirectStrategy } from "./sequence_direct.ts";
import { IdleSequences } from "./sequence_idle.ts";
import { SequenceLanes } from "./sequence_lanes.ts";
import { type SequenceHost, SequenceLane, type SequenceStrategy } from "./sequence_lane.ts";
import { OldestStrategy } from "./sequence_oldest.ts";
import type { SequenceRules } from "./sequence_rules.ts";
import type { SequenceSlots } from "./sequence_slots.ts";
import { rulesWithStates, SlotState, type StateRules } from "./sequence_state.ts";

/** What a sequence batcher works with. */
export interface SequenceBatcherParts {
  readonly instances: readonly ModelInstance[];
  readonly createPool: (instances: readonly ModelInstance[]) => InstancePool;
  readonly clock: Clock;
  readonly observer: JobObserver;
  readonly rules: TensorRules;
  readonly batching: ModelSequenceBatching;
  /** The model's implicit states. */
  readonly stateRules?: StateRules | undefined;
  /** Requests that must wait in slots before the first batch runs; 0 = none (`TRITONSERVER_DELAY_SCHEDULER`). */
  readonly delaySchedulerCount: number;
  /** As many must then wait in the backlog as well (`TRITONSERVER_BACKLOG_DELAY_SCHEDULER`). */
  readonly backlogDelayCount: number;
}

/**
 * Keeps the requests of a sequence together: one instance, one slot, strictly one after the other, with the control
 * tensors and states that the model wants (scheduling.md §3 and §4). Sequences that find no slot wait in the backlog.
 */
export class SequenceBatcher implements InstanceScheduler, SequenceHost {
  readonly clock: Clock;
  readonly #rules: SequenceRules;
  readonly #parts: SequenceBatcherParts;
  readonly #controls: SequenceControls;
  readonly #lanes: SequenceLanes;
  /** Sequences that take requests, by correlation id: a number and a text are never the same. */
  readonly #open = new Map<bigint | string, Sequence>();
  /** Sequences that take no more requests and are not over, the last one of each id. */
  readonly #ending = new Map<bigint | string, Sequence>();
  readonly #backlog: SequenceBacklog;
  readonly #idle: IdleSequences;
  readonly #inflight = new InflightCounter();
  /** Requests that do not watch for cancellation yet: most of them run in the same step of the event loop. */
  readonly #unwatched: Job[] = [];
  #lastOwnId = 0n;
  isHeld: boolean;

  constructor(rules: SequenceRules, parts: SequenceBatcherParts) {
    this.clock = parts.clock;
    this.#rules = rules;
    this.#parts = parts;
    this.isHeld = parts.delaySchedulerCount > 0;
    const { model: name, maxIdleMs, slotCount } = rules;
    const { maxBatchSize } = parts.rules;
    this.#controls = new SequenceControls({ name, maxBatchSize }, parts.batching);
    const mayShare = createBatchComparison(rulesWithStates(parts.rules, parts.stateRules));
    const createStrategy = (slots: SequenceSlots) => this.#createStrategy(slots, mayShare);
    this.#lanes = new SequenceLanes(parts.instances, (instance) => {
      const pool = parts.createPool([instance]);
      return new SequenceLane(pool, { host: this, slotCount, createStrategy });
    });
    this.#backlog = new SequenceBacklog(this.clock, (sequence) => {
      this.#dropWaiting(sequence, "REJECTED", backlogTimeoutError);
    });
    this.#idle = new IdleSequences({ clock: this.clock, maxIdleMs }, (sequence) => {
      this.#close(sequence);
      this.#releaseIfOver(sequence);
    });
  }

  get inflightCount(): number {
    return this.#inflight.count;
  }

  get isStopped(): boolean {
    return this.#inflight.isStopped;
  }

  enqueue(job: Job): void {
    const sequence = this.#admit(job);
    job.state = "queued";
    job.queueStartMs = job.startMs;
    job.sequence = sequence;
    job.mayReschedule = this.#rules.isIterative;
    sequence.push(job);
    this.#inflight.add();
    this.#parts.observer.accepted(job);
    this.#idle.remove(sequence);
    if (job.sequenceEnd) this.#close(sequence);
    if (sequence.lane === undefined && !this.#place(sequence)) this.#backlog.add(sequence, job);
    if (this.isHeld) this.#updateHold();
    if (job.isAborted) return this.#onAbort(job);
    sequence.lane?.wake(sequence);
    if (job.signal !== undefined) this.#watchSoon(job);
  }

  stop({ finishesSequences = false }: StopOptions = {}): Promise<void> {
    const stopping = this.#inflight.stop();
    this.isHeld = false;
    // Without `finishesSequences` nobody reaches the model any more: what a sequence has sent is all that it will send.
    for (const sequence of [...this.#open.values()]) {
      if (!finishesSequences || this.#isInTheWay(sequence)) this.#close(sequence);
      this.#releaseIfOver(sequence);
    }
    for (const lane of this.#lanes.all()) lane.wake();
    return stopping.then(() => {
      this.#idle.cancelTimer();
      for (const lane of this.#lanes.all()) lane.cancelTimer();
    });
  }

  addInstance(instance: ModelInstance): void {
    this.#lanes.add(instance);
    this.#serveBacklog();
  }

  removeInstance(instance: ModelInstance): Promise<void> {
    return this.#lanes.remove(instance);
  }

  holdsSequences(instance: ModelInstance): boolean {
    return this.#lanes.hasSequences(instance);
  }

  prepare(sequence: Sequence): Job {
    const job = sequence.first!;
    if (sequence.prepared === job) return job;
    const { state } = sequence;
    sequence.prepared = job;
    sequence.sentInputs = job.inputs;
    sequence.askedOutputs = job.outputs;
    if (sequence.mustStart) job.sequenceStart = true;
    if (job.sequenceStart) state?.reset();
    const inputs = [...job.inputs, ...this.#controls.flagTensors(job)];
    if (sequence.idTensor !== undefined) inputs.push(sequence.idTensor);
    if (state !== undefined) {
      inputs.push(...state.inputs());
      job.outputs = this.#parts.stateRules!.outputsWith(job.outputs);
    }
    if (inputs.length > job.inputs.length) job.inputs = inputs;
    return job;
  }

  dispatched(sequence: Sequence): void {
    if (this.#rules.strategy === "direct") this.#releaseIfOver(sequence);
  }

  refine(job: Job, outcome: ExecuteOutcome): ExecuteOutcome {
    const { state, askedOutputs } = job.sequence as Sequence;
    return state === undefined ? outcome : state.take(outcome, askedOutputs);
  }

  executed(job: Job): void {
    const sequence = job.sequence as Sequence;
    sequence.handedOn = undefined;
    sequence.prepared = undefined;
    sequence.mustStart = job.sequenceStart && "error" in job.outcome!;
    if (isRescheduled(job)) this.#requeue(sequence, job);
    else {
      // A silent sequence must not hold the buffers of its client.
      sequence.sentInputs = NO_INPUTS;
      if (this.#rules.isIterative && sequence.length === 0) this.#close(sequence);
    }
    if (sequence.length > 0) sequence.lane?.wake(sequence);
    else {
      if (this.isStopped && this.#isInTheWay(sequence)) this.#close(sequence);
      if (sequence.isClosed) this.#releaseIfOver(sequence);
      else this.#idle.add(sequence);
    }
  }

  settle(job: Job): void {
    job.settle(job.outcome!, this.#onEnd);
  }

  readonly #onEnd = (): void => this.#inflight.subtract();

  #createStrategy(slots: SequenceSlots, mayShare: BatchComparison | undefined): SequenceStrategy {
    const rules = this.#rules;
    if (rules.strategy === "oldest") return new OldestStrategy({ host: this, rules, mayShare });
    const { nullTensors } = this.#controls;
    return new DirectStrategy({ host: this, rules, slots, mayShare, nullTensors });
  }

  /** Finds the sequence of a request, or opens it. @throws ServerError for what is refused (scheduling.md §3.1). */
  #admit(job: Job): Sequence {
    const { isIterative, model: name } = this.#rules;
    if (isIterative && job.batchSize <= 1 && lacksId(job)) this.#giveId(job);
    checkSequenceRequest(job, { name, controls: this.#controls });
    const isOver = this.isStopped && this.#inflight.count === 0;
    if (!job.isCall && (isOver || (this.isStopped && job.sequenceStart))) {
      throw sequenceStoppedError();
    }
    const known = this.#open.get(job.correlationId);
    if (known !== undefined) return known;
    if (!job.sequenceStart) throw notStartedError(job, name);
    const sequence = new Sequence(job.correlationId);
    sequence.idTensor = this.#controls.idTensor(sequence.id);
    this.#open.set(sequence.id, sequence);
    sequence.predecessor = this.#ending.get(sequence.id);
    if (sequence.predecessor !== undefined) sequence.predecessor.successor = sequence;
    return sequence;
  }

  /** An iterative sequence of one request needs no id of the client. */
  #giveId(job: Job): void {
    do {
      this.#lastOwnId++;
      job.correlationId = this.#controls.wantsText ? `${this.#lastOwnId}` : this.#lastOwnId;
    } while (this.#open.has(job.correlationId));
    job.sequenceStart = true;
  }

  /** From now on its id belongs to nobody. */
  #close(sequence: Sequence): void {
    if (sequence.isClosed) return;
    sequence.isClosed = true;
    this.#open.delete(sequence.id);
    this.#ending.set(sequence.id, sequence);
  }

  /** Nothing of the sequence is left; the next one of its id may begin. */
  #end(sequence: Sequence): void {
    const { id, predecessor, successor } = sequence;
    if (this.#ending.get(id) === sequence) {
      if (predecessor === undefined) this.#ending.delete(id);
      else this.#ending.set(id, predecessor);
    }
    if (predecessor !== undefined) predecessor.successor = successor;
    if (successor !== undefined) successor.predecessor = predecessor;
  }

  /** Gives a sequence a slot; false when there is none, or the last one of its id is not over. */
  #place(sequence: Sequence): boolean {
    if (sequence.predecessor !== undefined || !this.#lanes.place(sequence)) return false;
    const { stateRules } = this.#parts;
    if (stateRules !== undefined) sequence.state = new SlotState(stateRules);
    return true;
  }

  /** A silent sequence must not keep others from coming to their end when the scheduler stops. */
  #isInTheWay({ lane, handedOn, length }: Sequence): boolean {
    return this.#backlog.size > 0 && lane !== undefined && length === 0 && handedOn === undefined;
  }

  /** Frees the slot of a sequence that has nothing to do and will get nothing more; the next one takes it. */
  #releaseIfOver(sequence: Sequence): void {
    const { lane } = sequence;
    if (!sequence.isClosed || sequence.length > 0 || lane === undefined || sequence.slot < 0) {
      return;
    }
    // Direct: what runs does not need the slot any more, since the next batch waits for it anyway.
    const holdsSlot = this.#rules.strategy === "oldest" || this.#rules.isIterative;
    if (holdsSlot && sequence.handedOn !== undefined) return;
    this.#idle.remove(sequence);
    lane.slots.release(sequence);
    this.#lanes.released(lane);
    this.#end(sequence);
    this.#serveBacklog();
  }

  /** Sequences of the backlog take the slots that are free. */
  #serveBacklog(): void {
    for (let next = this.#backlog.first(); next !== undefined; next = this.#backlog.first()) {
      if (!this.#place(next)) return;
      this.#backlog.remove(next);
      next.lane!.wake(next);
    }
  }

  /** Another turn of an iterative request: the same inputs, no flags, before everything else of its sequence. */
  #requeue(sequence: Sequence, job: Job): void {
    job.inputs = sequence.sentInputs;
    job.outputs = sequence.askedOutputs;
    job.outcome = undefined;
    job.sequenceStart = false;
    job.sequenceEnd = false;
    job.state = "queued";
    job.queueStartMs = this.clock.now();
    sequence.unshift(job);
    if (job.isAborted) this.#onAbort(job);
    else job.watch(this.#onAbort);
  }

  #watchSoon(job: Job): void {
    this.#unwatched.push(job);
    if (this.#unwatched.length === 1) queueMicrotask(this.#watchNew);
  }

  readonly #watchNew = (): void => {
    for (const job of this.#unwatched.splice(0)) {
      if (job.state !== "queued") continue;
      if (job.isAborted) this.#onAbort(job);
      else job.watch(this.#onAbort);
    }
  };

  /** A waiting request was cancelled: what comes after it in its sequence makes no sense without it. */
  readonly #onAbort = (job: Job): void => {
    if (job.state !== "queued") return;
    const sequence = job.sequence as Sequence;
    if (sequence.lane === undefined) {
      this.#backlog.remove(sequence);
      return this.#dropWaiting(sequence, "CANCELED", cancelledError);
    }
    const dropped: Job[] = [];
    if (sequence.handedOn === job) {
      (job.list as Sequence).remove(job);
      sequence.handedOn = undefined;
      dropped.push(job);
    }
    const first = dropped.length > 0 ? sequence.first : job;
    for (let next = first; next !== undefined;) {
      const after: Job | undefined = next.next;
      sequence.remove(next);
      dropped.push(next);
      next = after;
    }
    const { lane } = sequence;
    this.#close(sequence);
    this.#releaseIfOver(sequence);
    this.#drop(dropped, "CANCELED", cancelledError);
    lane.wake();
  };

  /** Ends a sequence of the backlog with everything it has. */
  #dropWaiting(sequence: Sequence, reason: FailureReason, createError: () => ServerError): void {
    const jobs: Job[] = [];
    for (let job = sequence.shift(); job !== undefined; job = sequence.shift()) jobs.push(job);
    this.#close(sequence);
    this.#end(sequence);
    this.#serveBacklog();
    this.#drop(jobs, reason, createError);
  }

  #drop(jobs: readonly Job[], reason: FailureReason, createError: () => ServerError): void {
    const nowMs = this.clock.now();
    for (const job of jobs) {
      this.#parts.observer.dropped(job, reason, nowMs);
      job.finish({ error: createError() });
      this.#onEnd();
    }
  }

  #updateHold(): void {
    let count = 0;
    for (const { slots } of this.#lanes.all()) {
      for (const sequence of slots.owners) {
        if (sequence === undefined) continue;
        count += sequence.length + (sequence.handedOn === undefined ? 0 : 1);
      }
    }
    const { delaySchedulerCount, backlogDelayCount } = this.#parts;
    if (count < delaySchedulerCount) return;
    if (this.#backlog.countRequests() < backlogDelayCount) return;
    this.isHeld = false;
    for (const lane of this.#lanes.all()) lane.wake();
  }
}

const NO_INPUTS: readonly Tensor[] = [];
