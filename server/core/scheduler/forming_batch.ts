import { byteSizeOf } from "../../../proto/tensor.ts";
import type { BatchInput, BatchRequest } from "../batch_strategy_api.ts";
import type { LoadedBatchStrategy } from "./batch_strategy.ts";
import type { Job } from "./job.ts";

/** Visits the waiting jobs in their order of service until the function it is given returns false. */
export type QueueScan = (visit: (job: Job) => boolean) => void;

/**
 * The batch that a custom strategy forms. It lasts as long as the requests that joined it wait at the head of the queue,
 * over all plans that are made meanwhile: so each request is asked about once per batch.
 */
export class FormingBatch {
  readonly #strategy: LoadedBatchStrategy;
  readonly #joined: Job[] = [];
  readonly #views: BatchRequest[] = [];
  #batch: unknown;
  #isStarted = false;
  /** Whoever comes after those that joined is not asked any more. */
  #isClosed = false;
  /** The one that joined was refused even so. */
  #isAlone = false;
  /** Was refused behind those that joined. */
  #refused: Job | undefined;
  /** Jobs of this plan seen so far. */
  #place = 0;

  constructor(strategy: LoadedBatchStrategy) {
    this.#strategy = strategy;
  }

  /** A plan begins: gives up the batch when those that joined do not stand at the head of the queue any more. */
  begin(scan: QueueScan): void {
    this.#place = 0;
    if (this.#joined.length === 0) return;
    let count = 0;
    scan((job) => job === this.#joined[count] && ++count < this.#joined.length);
    if (count < this.#joined.length) this.giveUp();
  }

  /**
   * True when the next job of the plan joins the batch. The first one may be refused and still be run, alone: it has
   * joined then, and nobody else does.
   */
  includes(job: Job): boolean {
    const place = this.#place++;
    if (place < this.#joined.length) return !this.#isAlone;
    if (this.#isClosed || job === this.#refused) return false;
    const view = new JobView(job);
    const isWanted = this.#ask(view);
    if (!isWanted && place > 0) {
      this.#refused = job;
      return false;
    }
    this.#joined.push(job);
    this.#views.push(view);
    if (!isWanted) this.#isClosed = this.#isAlone = true;
    return isWanted;
  }

  /** The first `count` of those that joined run now. */
  sent(count: number): void {
    this.#end(this.#views.slice(0, count));
  }

  /** Nothing comes of the batch. */
  giveUp(): void {
    this.#end([]);
  }

  #ask(view: BatchRequest): boolean {
    if (!this.#isStarted) {
      try {
        this.#batch = this.#strategy.start();
        checkSynchronous(this.#batch);
        this.#isStarted = true;
      } catch (reason) {
        this.#strategy.tellFailure("start", reason);
        return false;
      }
    }
    try {
      const answer = this.#strategy.includeRequest(view, this.#batch);
      if (typeof answer === "boolean") return answer;
      checkSynchronous(answer);
      throw new TypeError(`True or false expected, got ${describe(answer)}`);
    } catch (reason) {
      this.#strategy.tellFailure("includeRequest", reason);
      this.#isClosed = true;
      return false;
    }
  }

  #end(requests: readonly BatchRequest[]): void {
    const [isStarted, batch] = [this.#isStarted, this.#batch];
    this.#joined.length = 0;
    this.#views.length = 0;
    this.#isStarted = false;
    this.#batch = undefined;
    this.#isClosed = false;
    this.#isAlone = false;
    this.#refused = undefined;
    this.#place = 0;
    if (!isStarted) return;
    try {
      checkSynchronous(this.#strategy.finish(batch, requests));
    } catch (reason) {
      this.#strategy.tellFailure("finish", reason);
    }
  }
}

/** A request as the strategy sees it; its tensors are looked at when they are asked for. */
class JobView implements BatchRequest {
  readonly #job: Job;
  #inputs: readonly BatchInput[] | undefined;

  constructor(job: Job) {
    this.#job = job;
  }

  get id(): string {
    return this.#job.id;
  }

  get correlationId(): bigint | string {
    return this.#job.correlationId;
  }

  get batchSize(): number {
    return Math.max(1, this.#job.batchSize);
  }

  get priority(): number {
    return this.#job.priority;
  }

  get timeoutUs(): number {
    return this.#job.timeoutUs;
  }

  get inputs(): readonly BatchInput[] {
    if (this.#job.inputs.length === 0) return [];
    return this.#inputs ??= this.#job.inputs.map((tensor) => ({
      name: tensor.name,
      datatype: tensor.datatype,
      shape: tensor.shape,
      byteSize: byteSizeOf(tensor),
      get data() {
        return tensor.data;
      },
    }));
  }

  get requestedOutputs(): readonly string[] {
    return this.#job.outputs;
  }

  get parameters(): BatchRequest["parameters"] {
    return this.#job.parameters;
  }
}

/** @throws TypeError for a promise, whose rejection is then nobody's fault any more. */
function checkSynchronous(value: unknown): void {
  if (!(value instanceof Promise)) return;
  value.catch(() => {});
  throw new TypeError("A promise was returned; it must return at once and not be async");
}

function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value);
  return `${typeof value} ${JSON.stringify(value)?.slice(0, 60) ?? ""}`.trim();
}
