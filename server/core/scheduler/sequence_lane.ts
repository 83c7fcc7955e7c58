import type { ExecuteOutcome, ModelInstance } from "../../../backends/backend.ts";
import type { Clock } from "../clock.ts";
import type { InstancePool } from "./instance_pool.ts";
import { isRescheduled, type Job } from "./job.ts";
import type { Sequence } from "./sequence.ts";
import { SequenceSlots } from "./sequence_slots.ts";
import { WakeTimer } from "./wake_timer.ts";

/** What the lanes of a sequence batcher need from it. */
export interface SequenceHost {
  readonly clock: Clock;
  /** No batch may run yet (test hooks). */
  readonly isHeld: boolean;
  /** Nobody new comes: waiting for company makes no sense. */
  readonly isStopped: boolean;
  /** Gives the first waiting request of a sequence what the model gets besides the client's inputs, and returns it. */
  prepare(sequence: Sequence): Job;
  /** The request left the queue of its sequence for an instance. */
  dispatched(sequence: Sequence): void;
  /** Stores the states of an execution, and takes them out of what the client gets. */
  refine(job: Job, outcome: ExecuteOutcome): ExecuteOutcome;
  /** A request was executed, or wants another turn: its sequence goes on. */
  executed(job: Job): void;
  /** Answers an executed request. */
  settle(job: Job): void;
}

/** Decides which requests of the sequences of one instance run next: the strategies direct and oldest. */
export interface SequenceStrategy {
  /** The sequence has a request that waits, and none that was handed on. */
  offer(sequence: Sequence): void;
  /** When the next batch is due, ms: not later than `nowMs` = now, Infinity = not before something changes. */
  dueMs(nowMs: number): number;
  /** Takes the batch that `dueMs` has just found due out of the queues. */
  take(): Job[];
}

/** Turns that follow each other without waiting for anything let the rest of the server go on so often, ms. */
const BREATHE_MS = 2;

/** One instance of a sequence model: its slots, and the one batch that runs at a time. */
export class SequenceLane {
  readonly slots: SequenceSlots;
  readonly #pool: InstancePool;
  readonly #host: SequenceHost;
  readonly #strategy: SequenceStrategy;
  readonly #timer: WakeTimer;
  #isPassPlanned = false;
  #isBreathing = false;
  #breathedMs = 0;

  constructor(
    pool: InstancePool,
    parts: {
      readonly host: SequenceHost;
      readonly slotCount: number;
      readonly createStrategy: (slots: SequenceSlots) => SequenceStrategy;
    },
  ) {
    this.slots = new SequenceSlots(parts.slotCount);
    this.#pool = pool;
    this.#host = parts.host;
    this.#strategy = parts.createStrategy(this.slots);
    this.#timer = new WakeTimer(parts.host.clock, () => this.#pass());
    pool.refine = (job, outcome) => job.isNull ? outcome : this.#host.refine(job, outcome);
    pool.onFinished = (jobs) => this.#onFinished(jobs);
    pool.onAvailable = () => this.#pass();
  }

  /** A sequence here has something to do, or something changed that others waited for. */
  wake(sequence?: Sequence): void {
    if (sequence?.first !== undefined && sequence.handedOn === undefined) {
      this.#strategy.offer(sequence);
    }
    if (this.#isPassPlanned) return;
    this.#isPassPlanned = true;
    queueMicrotask(this.#plannedPass);
  }

  /** Takes the instance out of service; settles when it runs nothing any more. */
  leave(instance: ModelInstance): Promise<void> {
    return this.#pool.removeInstance(instance);
  }

  /** Ends waiting for time to pass. */
  cancelTimer(): void {
    this.#timer.cancel();
  }

  readonly #plannedPass = (): void => {
    if (this.#isPassPlanned) this.#pass();
  };

  #pass(): void {
    this.#isPassPlanned = false;
    if (this.#isBreathing) return;
    const pool = this.#pool;
    let isDue = false;
    while (!this.#host.isHeld && (pool.idleCount > 0 || pool.heldBackCount > 0)) {
      const nowMs = this.#host.clock.now();
      const dueMs = this.#strategy.dueMs(nowMs);
      isDue = dueMs <= nowMs;
      if (!isDue) this.#timer.arm(dueMs);
      if (!isDue || pool.idleCount === 0) break;
      this.#run(this.#strategy.take());
      isDue = false;
    }
    if (pool.heldBackCount > 0) pool.setDemand(isDue);
  }

  #run(jobs: readonly Job[]): void {
    for (const job of jobs) {
      if (!job.isNull) this.slots.check(job.sequence as Sequence);
    }
    this.#pool.run(jobs);
    for (const job of jobs) {
      if (!job.isNull) this.#host.dispatched(job.sequence as Sequence);
    }
  }

  #onFinished(jobs: readonly Job[]): void {
    const answered: Job[] = [];
    let hasFurtherTurns = false;
    for (const job of jobs) {
      if (job.isNull) {
        const { outcome } = job;
        if (outcome !== undefined && "release" in outcome) outcome.release?.();
        continue;
      }
      if (isRescheduled(job)) hasFurtherTurns = true;
      else answered.push(job);
      this.#host.executed(job);
    }
    if (hasFurtherTurns) this.#breathe();
    // The instance goes on before the answers are made.
    this.#pass();
    for (const job of answered) this.#host.settle(job);
  }

  /**
   * A request may ask for turns without end, each over before the event loop has looked at anything else: clients,
   * timers, signals.
   */
  #breathe(): void {
    const { clock } = this.#host;
    if (this.#isBreathing || clock.now() - this.#breathedMs < BREATHE_MS) return;
    this.#isBreathing = true;
    clock.setTimer(0, () => {
      this.#isBreathing = false;
      this.#breathedMs = clock.now();
      this.#pass();
    });
  }
}
