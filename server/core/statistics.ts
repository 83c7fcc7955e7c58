import { create } from "@bufbuild/protobuf";
import {
  InferBatchStatisticsSchema,
  InferStatisticsSchema,
  type ModelStatistics,
  ModelStatisticsSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import type { ExecuteResponse, InstancePlacement } from "../../backends/backend.ts";
import type { ServerError } from "../../proto/status.ts";
import { CacheStatistics, type CacheUseSnapshot } from "./cache_statistics.ts";
import type { Clock } from "./clock.ts";
import { durationMessage } from "./duration_count.ts";
import { ResponseStatistics } from "./response_statistics.ts";
import { RequestCounts, type RequestCountsSnapshot, sumRequestCounts } from "./request_counts.ts";
import type { CacheObserver } from "./scheduler/caching_scheduler.ts";
import type { ExecuteTimes, JobObserver } from "./scheduler/instance_pool.ts";
import { type ComputeSums, type FailureReason, isRescheduled, type Job } from "./scheduler/job.ts";

/** Every reason a request can fail for; all of them are shown from the start. */
export const FAILURE_REASONS: readonly FailureReason[] = [
  "REJECTED",
  "CANCELED",
  "BACKEND",
  "OTHER",
];

/** Kinds of duration that are summed up per request. */
export const REQUEST_DURATIONS = [
  "request",
  "queue",
  "compute_input",
  "compute_infer",
  "compute_output",
] as const;
export type RequestDuration = typeof REQUEST_DURATIONS[number];

/** What is counted beyond the plain counters (cli.md §2.5, `--metrics-config`). */
export interface StatisticsOptions {
  /** Upper bounds of the first-response histogram, ms; undefined = no histogram. */
  readonly firstResponseBuckets?: readonly number[];
  /** Quantiles of the latency summaries; undefined = no summaries. */
  readonly summaryQuantiles?: readonly number[];
}

/** Plain copy of what was counted for one model version, taken in one step. Durations are whole microseconds. */
export interface VersionSnapshot extends RequestCountsSnapshot {
  readonly model: string;
  /** Path of the repository; absent without namespacing. */
  readonly namespace?: string;
  readonly version: number;
  readonly tags: Readonly<Record<string, string>>;
  readonly received: number;
  readonly inflight: number;
  readonly pending: number;
  readonly batchRetryCount: number;
  /** Absent = 0. */
  readonly kindFallbackCount?: number;
  readonly loadSeconds: number;
  /** Of versions with instances on GPUs: what ran on none of them, and what on each; together the counts above. */
  readonly children?: readonly ChildSnapshot[];
  /** Of versions that use the response cache. */
  readonly cache?: CacheUseSnapshot;
}

/** What was counted of a version on one GPU. */
export interface ChildSnapshot extends RequestCountsSnapshot {
  /** Absent = on no GPU. */
  readonly gpuUuid?: string;
}

interface BatchCount {
  count: number;
  inputMs: number;
  inferMs: number;
  outputMs: number;
}

/** What identifies a version, and how much is counted. */
export interface VersionStatisticsOptions {
  readonly model: string;
  /** Path of the repository; "" or absent without namespacing. */
  readonly namespace?: string;
  readonly version: number;
  readonly tags: Readonly<Record<string, string>>;
  readonly clock: Clock;
  readonly statistics: StatisticsOptions;
  /** Responses are counted one by one; false when absent. */
  readonly decoupled?: boolean;
  /** Uses the response cache; false when absent. */
  readonly cached?: boolean;
  /** Instance groups that run on a lesser kind of device than they asked for; 0 when absent. */
  readonly kindFallbackCount?: number;
}

/**
 * Everything counted for one loaded model version; statistics, metrics and dashboard are views of it. A request counts
 * as received when a scheduler took it and as success or failure when its outcome is known, so that at any moment
 * received = success + failure + in flight.
 */
export class VersionStatistics implements JobObserver, CacheObserver {
  /** See `VersionStatisticsOptions`; changed when the groups are. */
  kindFallbackCount: number;
  readonly #options: VersionStatisticsOptions;
  /** Of what ran on no GPU, or never. */
  readonly #rest: RequestCounts;
  /** By CUDA's number of the GPU. */
  readonly #gpus = new Map<number, { readonly uuid: string; readonly counts: RequestCounts }>();
  readonly #batches = new Map<number, BatchCount>();
  readonly #responses: ResponseStatistics | undefined;
  readonly #cache: CacheStatistics | undefined;
  #received = 0;
  #failed = 0;
  #failMs = 0;
  #pending = 0;
  #batchRetryCount = 0;
  #lastInferenceMs = 0;
  #loadMs = 0;

  constructor(options: VersionStatisticsOptions) {
    this.#options = options;
    this.kindFallbackCount = options.kindFallbackCount ?? 0;
    if (options.decoupled) this.#responses = new ResponseStatistics();
    const { statistics, clock } = options;
    if (options.cached) this.#cache = new CacheStatistics(statistics.summaryQuantiles);
    this.#rest = new RequestCounts(statistics, clock);
  }

  /** Counts what runs on a GPU from now on apart, with the label `gpu_uuid` (observability.md §1.1). */
  addGpu(deviceId: number, uuid: string): void {
    if (this.#gpus.has(deviceId)) return;
    const { statistics, clock } = this.#options;
    this.#gpus.set(deviceId, { uuid, counts: new RequestCounts(statistics, clock) });
  }

  accepted(_job: Job): void {
    this.#received++;
    this.#pending++;
  }

  started(jobs: readonly Job[]): void {
    for (const job of jobs) if (!job.isNull) this.#pending--;
  }

  dropped(job: Job, reason: FailureReason, nowMs: number): void {
    this.#pending--;
    job.executeTimes = undefined;
    this.#fail(job, reason, nowMs, this.#rest);
  }

  executed(jobs: readonly Job[], times: ExecuteTimes): void {
    const inputMs = Math.max(0, times.inputEndMs - times.startMs);
    const inferMs = Math.max(0, times.outputStartMs - times.inputEndMs);
    const outputMs = Math.max(0, times.endMs - times.outputStartMs);
    const counts = this.#countsOf(jobs[0]);
    let rows = 0;
    for (const job of jobs) {
      rows += Math.max(1, job.batchSize);
      if (job.isNull) continue;
      if (isRescheduled(job)) {
        this.#pending++;
        continue;
      }
      const outcome = job.outcome!;
      if ("streamed" in outcome || job.isFinalSent) {
        // Over only with the last response: see `ended`.
        job.executeTimes = times;
        continue;
      }
      job.executeTimes = undefined;
      if ("error" in outcome) {
        const reason = isCancellation(job, outcome.error) ? "CANCELED" : "BACKEND";
        this.#fail(job, reason, times.endMs, counts);
      } else {
        this.#succeed(job, times, inputMs, inferMs, outputMs);
      }
    }
    this.#countBatch(counts, rows, { inputMs, inferMs, outputMs });
  }

  /** A request of an ensemble that was started at `startMs` succeeded: durations are sums over its steps. */
  composed(job: Job, startMs: number, sums: ComputeSums): void {
    const endMs = this.#options.clock.now();
    const times = { startMs, inputEndMs: startMs, outputStartMs: endMs, endMs };
    this.#succeed(job, times, sums.inputMs, sums.inferMs, sums.outputMs);
    this.#countBatch(this.#rest, Math.max(1, job.batchSize), sums);
  }

  /** A request failed after it had left the queue. */
  failed(job: Job, reason: FailureReason, nowMs: number): void {
    this.#fail(job, reason, nowMs, this.#countsOf(job));
  }

  /** Where it is counted what an instance did. */
  #countsOf(job: Job | undefined): RequestCounts {
    const placement = this.#gpus.size === 0 ? undefined : job?.placement;
    if (!isOnCuda(placement)) return this.#rest;
    return this.#gpus.get(placement.deviceId)?.counts ?? this.#rest;
  }

  #countBatch(
    counts: RequestCounts,
    rows: number,
    { inputMs, inferMs, outputMs }: ComputeSums,
  ): void {
    counts.executionCount++;
    this.#lastInferenceMs = this.#options.clock.wallNow();
    let batch = this.#batches.get(rows);
    if (batch === undefined) {
      this.#batches.set(rows, batch = { count: 0, inputMs: 0, inferMs: 0, outputMs: 0 });
    }
    batch.count++;
    batch.inputMs += inputMs;
    batch.inferMs += inferMs;
    batch.outputMs += outputMs;
  }

  responded(job: Job, response: ExecuteResponse | undefined): void {
    if (this.#responses === undefined || job.isNull) return;
    const endMs = this.#options.clock.now();
    const index = job.responseCount++;
    const startMs = index === 0 ? job.executeStartMs : job.lastResponseMs;
    job.lastResponseMs = endMs;
    const isCancelled = response === undefined
      ? job.isAborted
      : "error" in response && isCancellation(job, response.error);
    this.#responses.count(index, response, { startMs, endMs, isCancelled });
    if (index === 0 && !isCancelled) {
      this.#countsOf(job).histogram?.observe(Math.floor(endMs - job.startMs));
    }
  }

  ended(job: Job, failure: ServerError | undefined): void {
    const times = job.executeTimes!;
    const nowMs = this.#options.clock.now();
    if (failure !== undefined) {
      const reason = isCancellation(job, failure) ? "CANCELED" : "BACKEND";
      this.#fail(job, reason, nowMs, this.#countsOf(job));
      return;
    }
    // A model that streams computes until its last response.
    const outputMs = Math.max(0, times.endMs - times.outputStartMs);
    const endMs = Math.max(times.endMs, nowMs);
    this.#succeed(
      job,
      { ...times, endMs },
      Math.max(0, times.inputEndMs - times.startMs),
      Math.max(0, endMs - outputMs - times.inputEndMs),
      outputMs,
    );
  }

  cacheHit(job: Job, lookup: { readonly startMs: number; readonly endMs: number }): void {
    this.#pending--;
    const counts = this.#rest;
    counts.success++;
    const requestMs = lookup.endMs - job.startMs;
    counts.add("request", requestMs);
    counts.add("queue", lookup.startMs - job.queueStartMs);
    this.#cache?.hit.add(lookup.endMs - lookup.startMs, lookup.endMs);
    counts.histogram?.observe(Math.floor(requestMs));
  }

  cacheMiss(durationMs: number): void {
    this.#rest.add("request", durationMs);
    this.#cache?.miss.add(durationMs, this.#options.clock.now());
  }

  /** A batch failed in the runtime and was run again request by request. */
  countBatchRetry(): void {
    this.#batchRetryCount++;
  }

  loaded(durationMs: number): void {
    this.#loadMs = durationMs;
  }

  #succeed(
    job: Job,
    times: ExecuteTimes,
    inputMs: number,
    inferMs: number,
    outputMs: number,
  ): void {
    const counts = this.#countsOf(job);
    counts.success++;
    counts.inferenceCount += Math.max(1, job.batchSize);
    if (job.compute !== undefined) {
      job.compute.inputMs += inputMs;
      job.compute.inferMs += inferMs;
      job.compute.outputMs += outputMs;
    }
    const requestMs = times.endMs - job.startMs;
    counts.add("request", requestMs);
    counts.add("queue", times.startMs - job.queueStartMs);
    counts.add("compute_input", inputMs);
    counts.add("compute_infer", inferMs);
    counts.add("compute_output", outputMs);
    // The first response of a decoupled model was observed when it was sent.
    if (job.responseCount === 0) counts.histogram?.observe(Math.floor(requestMs));
  }

  #fail(job: Job, reason: FailureReason, nowMs: number, counts: RequestCounts): void {
    counts.failures[reason]++;
    this.#failed++;
    this.#failMs += nowMs - job.startMs;
  }

  /** Everything counted, for the metrics. */
  snapshot(): VersionSnapshot {
    const { model, namespace, version, tags, clock } = this.#options;
    const children = this.#children();
    const counts = sumRequestCounts(children);
    return {
      ...counts,
      model,
      ...(namespace === undefined || namespace === "" ? {} : { namespace }),
      version,
      tags,
      received: this.#received,
      inflight: this.#received - counts.success - this.#failed,
      pending: this.#pending,
      batchRetryCount: this.#batchRetryCount,
      kindFallbackCount: this.kindFallbackCount,
      loadSeconds: this.#loadMs / 1000,
      ...(children.length === 1 ? {} : { children }),
      ...(this.#cache === undefined ? {} : { cache: this.#cache.snapshot(clock.now()) }),
    };
  }

  #children(): readonly ChildSnapshot[] {
    const gpus = [...this.#gpus.values()];
    return [
      this.#rest.snapshot(),
      ...gpus.map(({ uuid, counts }) => ({ ...counts.snapshot(), gpuUuid: uuid })),
    ];
  }

  /** Everything counted, as the statistics extension shows it (observability.md §3). */
  toMessage(): ModelStatistics {
    const all = [this.#rest, ...[...this.#gpus.values()].map(({ counts }) => counts)];
    const sum = (valueOf: (counts: RequestCounts) => number) =>
      all.reduce((total, counts) => total + valueOf(counts), 0);
    const success = sum((counts) => counts.success);
    const hit = this.#cache?.hit ?? { count: 0, sumMs: 0 };
    const miss = this.#cache?.miss ?? { count: 0, sumMs: 0 };
    const duration = (kind: RequestDuration, count = success) =>
      statistic(count, sum(({ sumsMs }) => sumsMs[kind]));
    const executedCount = success - hit.count;
    return create(ModelStatisticsSchema, {
      name: this.#options.model,
      version: String(this.#options.version),
      lastInference: BigInt(this.#lastInferenceMs),
      inferenceCount: BigInt(sum(({ inferenceCount }) => inferenceCount)),
      executionCount: BigInt(sum(({ executionCount }) => executionCount)),
      inferenceStats: create(InferStatisticsSchema, {
        success: duration("request"),
        fail: statistic(this.#failed, this.#failMs),
        queue: duration("queue"),
        computeInput: duration("compute_input", executedCount),
        computeInfer: duration("compute_infer", executedCount),
        computeOutput: duration("compute_output", executedCount),
        cacheHit: durationMessage(hit),
        cacheMiss: durationMessage(miss),
      }),
      responseStats: this.#responses?.toMessages() ?? {},
      batchStats: [...this.#batches].sort(([a], [b]) => a - b).map(([size, batch]) =>
        create(InferBatchStatisticsSchema, {
          batchSize: BigInt(size),
          computeInput: statistic(batch.count, batch.inputMs),
          computeInfer: statistic(batch.count, batch.inferMs),
          computeOutput: statistic(batch.count, batch.outputMs),
        })
      ),
    });
  }
}

/** Whether an instance runs on a GPU of NVIDIA's, which has a UUID. */
function isOnCuda(placement: InstancePlacement | undefined): placement is InstancePlacement {
  return placement?.kind === "KIND_GPU" && (placement.device ?? "cuda") === "cuda";
}

function isCancellation(job: Job, error: ServerError): boolean {
  return error.code === "CANCELLED" && job.isAborted;
}

function statistic(count: number, sumMs: number) {
  return durationMessage({ count, sumMs });
}
