import { ServerError } from "../../../proto/status.ts";
import type { BatchRules, QueuePolicy } from "./batch_rules.ts";
import { DeadlineHeap } from "./deadline_heap.ts";
import { type Job, requestPrefix } from "./job.ts";
import { JobList } from "./job_list.ts";

/** One priority level: requests in time, and those whose time is over but which still may run. */
interface Level {
  readonly number: number;
  readonly policy: QueuePolicy;
  readonly normal: JobList;
  readonly delayed: JobList;
}

/** The waiting requests of a dynamic batcher, by priority level, with limits and deadlines (scheduling.md §2.2). */
export class RequestQueue {
  readonly #rules: BatchRules;
  /** Levels in which somebody waits, the one to be served first in front. */
  readonly #levels: Level[] = [];
  readonly #deadlines = new DeadlineHeap();
  #length = 0;

  constructor(rules: BatchRules) {
    this.#rules = rules;
  }

  get length(): number {
    return this.#length;
  }

  /** When the earliest deadline passes, ms; Infinity when there is none. */
  get earliestDeadlineMs(): number {
    return this.#deadlines.earliest?.deadlineMs ?? Infinity;
  }

  /** True when the level the job belongs to takes no more. */
  isFull(job: Job): boolean {
    const number = this.#levelOf(job);
    const limit = this.#policyOf(number).maxQueueSize;
    if (limit === 0) return false;
    const level = this.#find(number);
    return level !== undefined && level.normal.length + level.delayed.length >= limit;
  }

  /** Appends a job to its level. @throws ServerError UNAVAILABLE when the level is full. */
  add(job: Job, nowMs: number): void {
    if (this.isFull(job)) {
      const message = `${requestPrefix(job.id)}Exceeds maximum queue size`;
      throw new ServerError("UNAVAILABLE", message, { isRefusal: true });
    }
    job.level = this.#levelOf(job);
    const level = this.#find(job.level) ?? this.#open(job.level);
    const timeoutUs = effectiveTimeoutUs(job, level.policy);
    level.normal.push(job);
    this.#length++;
    if (timeoutUs > 0) {
      job.deadlineMs = nowMs + timeoutUs / 1000;
      this.#deadlines.add(job);
    }
  }

  /** Takes a job out, wherever it waits; false when it does not wait here. */
  remove(job: Job): boolean {
    const level = this.#find(job.level);
    if (level === undefined) return false;
    if (!level.normal.remove(job) && !level.delayed.remove(job)) return false;
    this.#deadlines.remove(job);
    this.#length--;
    if (level.normal.length === 0 && level.delayed.length === 0 && this.#rules.priorityLevels > 0) {
      this.#levels.splice(this.#levels.indexOf(level), 1);
    }
    return true;
  }

  /**
   * Looks after the jobs whose deadline has passed: those to be rejected are taken out and returned, the others go
   * behind their level.
   */
  expire(nowMs: number): Job[] {
    const rejected: Job[] = [];
    for (;;) {
      const job = this.#deadlines.earliest;
      if (job === undefined || job.deadlineMs > nowMs) return rejected;
      const level = this.#find(job.level)!;
      if (level.policy.timeoutAction === "REJECT") {
        this.remove(job);
        rejected.push(job);
      } else {
        this.#deadlines.remove(job);
        job.deadlineMs = Infinity;
        level.normal.remove(job);
        level.delayed.push(job);
      }
    }
  }

  /** Visits the jobs in the order they are to be served, until `visit` returns false. */
  scan(visit: (job: Job) => boolean): void {
    for (const { normal, delayed } of this.#levels) {
      if (!visitList(normal, visit) || !visitList(delayed, visit)) return;
    }
  }

  #levelOf(job: Job): number {
    const { priorityLevels, defaultPriorityLevel } = this.#rules;
    if (priorityLevels === 0) return 1;
    const asked = job.priority;
    return asked >= 1 && asked <= priorityLevels ? asked : defaultPriorityLevel;
  }

  #policyOf(number: number): QueuePolicy {
    return this.#rules.levelPolicies.get(number) ?? this.#rules.defaultPolicy;
  }

  #find(number: number): Level | undefined {
    const first = this.#levels[0];
    if (first?.number === number) return first;
    const level = this.#levels[this.#placeOf(number)];
    return level?.number === number ? level : undefined;
  }

  /** Index of the first level that is not served before `number`. */
  #placeOf(number: number): number {
    let low = 0;
    let high = this.#levels.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#levels[middle]!.number < number) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #open(number: number): Level {
    const level = {
      number,
      policy: this.#policyOf(number),
      normal: new JobList(),
      delayed: new JobList(),
    };
    this.#levels.splice(this.#placeOf(number), 0, level);
    return level;
  }
}

/** A client may shorten its time in the queue, never lengthen it. */
function effectiveTimeoutUs(job: Job, policy: QueuePolicy): number {
  const { defaultTimeoutUs } = policy;
  const isShorter = job.timeoutUs > 0 && job.timeoutUs < defaultTimeoutUs;
  return policy.allowTimeoutOverride && isShorter ? job.timeoutUs : defaultTimeoutUs;
}

function visitList(list: JobList, visit: (job: Job) => boolean): boolean {
  for (let job = list.first; job !== undefined; job = job.next) {
    if (!visit(job)) return false;
  }
  return true;
}
