import type { ExecuteResponse, ModelInstance } from "../../backends/backend.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type { Clock } from "./clock.ts";
import type { Log } from "./log.ts";
import { InstancePool, type JobObserver } from "./scheduler/instance_pool.ts";
import { isRescheduled, Job } from "./scheduler/job.ts";
import type { WarmupSample } from "./warmup_sample.ts";

/** What warming up works with. */
export interface WarmupParts {
  /** Complete. */
  readonly config: ModelConfig;
  readonly samples: readonly WarmupSample[];
  /** Executions count like those of clients. */
  readonly observer: JobObserver;
  readonly clock: Clock;
  readonly log: Log;
}

/** Further turns of an iterative request are not waited for. */
const TURN_COUNT_MAX = 10_000;
/** Executions that wait for nothing let the rest of the server go on so often, ms. */
const BREATHE_MS = 10;
/** Different errors of one sample that are told. */
const ERRORS_SHOWN_MAX = 10;

/**
 * Runs the samples on a new instance in their order, past scheduler, queue, rate limiter and cache (scheduling.md §8);
 * settles when every response has come. The responses are dropped.
 * @throws ServerError INVALID_ARG that names every sample that failed, and why.
 */
export async function warmUp(instance: ModelInstance, parts: WarmupParts): Promise<void> {
  if (parts.samples.length === 0) return;
  const run = new WarmupRun(instance, parts);
  const faults: string[] = [];
  for (const sample of parts.samples) {
    const errors = await run.runSample(sample);
    if (errors.length === 0) continue;
    const shown = errors.slice(0, ERRORS_SHOWN_MAX).map((error) => `${error}; `).join("");
    faults.push(`failed to run warmup sample '${sample.name}': ${shown}`);
  }
  if (faults.length > 0) throw new ServerError("INVALID_ARG", faults.join("\n  "));
}

class WarmupRun {
  readonly #parts: WarmupParts;
  readonly #pool: InstancePool;
  readonly #instanceName: string;
  /** Without batching every request is an execution of its own. */
  readonly #isBatching: boolean;
  readonly #isDecoupled: boolean;
  readonly #isIterative: boolean;
  #breathedMs: number;

  constructor(instance: ModelInstance, parts: WarmupParts) {
    this.#parts = parts;
    this.#instanceName = instance.placement.name;
    const { clock, config, observer } = parts;
    const { schedulingChoice: scheduling } = config;
    this.#isBatching = config.maxBatchSize > 0;
    this.#isDecoupled = config.modelTransactionPolicy?.decoupled ?? false;
    this.#isIterative = scheduling.case === "sequenceBatching" &&
      scheduling.value.iterativeSequence;
    this.#pool = new InstancePool({ instances: [instance], clock, observer });
    this.#breathedMs = clock.now();
  }

  /** @returns the errors, each once; after an execution with errors the sample is not run again. */
  async runSample(sample: WarmupSample): Promise<readonly string[]> {
    const { batchSize, count } = sample;
    const requestCount = this.#isBatching ? batchSize : 1;
    const executionCount = this.#isBatching ? count : count * batchSize;
    const errors = new Set<string>();
    for (let index = 0; index < executionCount && errors.size === 0; index++) {
      this.#log(sample, index);
      const ended: Promise<void>[] = [];
      const jobs = Array.from({ length: requestCount }, () => {
        const { promise, resolve } = Promise.withResolvers<void>();
        ended.push(promise);
        return this.#createJob(sample, errors, resolve);
      });
      await this.#execute(jobs, errors);
      await Promise.all(ended);
    }
    return [...errors];
  }

  #log({ name }: WarmupSample, index: number): void {
    const { config, log } = this.#parts;
    log.verbose(
      1,
      `model '${config.name}', instance ${this.#instanceName} is running warmup sample ` +
        `'${name}' for iteration ${index + 1}`,
    );
  }

  #createJob(sample: WarmupSample, errors: Set<string>, onEnd: () => void): Job {
    const { clock, observer } = this.#parts;
    const take = (response: ExecuteResponse | undefined): undefined => {
      if (response === undefined) return;
      if ("error" in response) errors.add(response.error.message);
      else response.release?.();
    };
    const job = new Job({
      id: "",
      correlationId: 0n,
      batchSize: 1,
      inputs: sample.inputs,
      outputs: sample.outputs,
      parameters: {},
      signal: undefined,
      priority: 0,
      timeoutUs: 0,
      startMs: clock.now(),
      onDone: (_job, response) => {
        take(response);
        onEnd();
      },
      ...(this.#isDecoupled ? { onResponse: take } : {}),
    });
    job.mayReschedule = this.#isIterative;
    job.state = "queued";
    job.queueStartMs = job.startMs;
    observer.accepted(job);
    return job;
  }

  /** Runs the jobs together, those that want further turns again. */
  async #execute(jobs: readonly Job[], errors: Set<string>): Promise<void> {
    let waiting = jobs;
    for (let turn = 0; waiting.length > 0; turn++) {
      if (turn === TURN_COUNT_MAX) {
        errors.add(`the model asked for more than ${TURN_COUNT_MAX} turns`);
        for (const job of waiting) job.finish(undefined);
        return;
      }
      const finished = await this.#runOnce(waiting);
      await this.#breathe();
      const further: Job[] = [];
      for (const job of finished) {
        if (isRescheduled(job)) further.push(job);
        else job.settle(job.outcome!, () => {});
      }
      waiting = further;
    }
  }

  /** A model whose executions are over at once would keep the event loop to itself, for all its samples. */
  async #breathe(): Promise<void> {
    const { clock } = this.#parts;
    if (clock.now() - this.#breathedMs < BREATHE_MS) return;
    await new Promise<void>((resolve) => clock.setTimer(0, resolve));
    this.#breathedMs = clock.now();
  }

  #runOnce(jobs: readonly Job[]): Promise<readonly Job[]> {
    return new Promise((resolve) => {
      this.#pool.onFinished = resolve;
      this.#pool.run(jobs);
    });
  }
}
