import type { Backend, Devices } from "../../backends/backend.ts";
import { loadBatchStrategy } from "./batch_strategy_loader.ts";
import type { Clock } from "./clock.ts";
import { completeModelConfig } from "./config_complete.ts";
import type { CustomMetrics } from "./custom_metrics.ts";
import { Engine } from "./engine.ts";
import type { InferenceApi } from "./inference_api.ts";
import { type Log, moduleLog } from "./log.ts";
import type { LogControl } from "./log_control.ts";
import type { MetricsSnapshot } from "./metrics_snapshot.ts";
import { openModelRepositories } from "./model_repositories.ts";
import type { ServerOptions } from "./options.ts";
import type { RepositoryAgents } from "./repository_agent.ts";
import { watchFolders } from "./repository_watch.ts";
import { createResponseCache } from "./response_cache_config.ts";
import type { RegionOpener } from "./shared_memory.ts";
import type { StartResult } from "./start.ts";
import type { StatisticsOptions } from "./statistics.ts";
import { TemporaryFolders } from "./temporary_folders.ts";
import type { Tracer } from "./tracer.ts";

export type { StartedModel, StartResult } from "./start.ts";
export type { MetricsSnapshot } from "./metrics_snapshot.ts";
export type { StatisticsOptions } from "./statistics.ts";

/** The facade with its life: what the command line and the embedding API hold. */
export interface InferenceServer extends InferenceApi {
  /** Loads the models of the start; never rejects. Call it once. */
  start(): Promise<StartResult>;
  /** Refuses new requests, finishes those in flight, unloads everything; true when that was done in time. */
  stop(timeoutMs: number): Promise<boolean>;
  metrics(): MetricsSnapshot;
  /** For `BackendContext.countBatchRetry`. */
  countBatchRetry(modelName: string, version: number): void;
}

/** What the server gets from the process that hosts it. */
export interface InferenceServerParts {
  readonly clock: Clock;
  readonly log: Log;
  /** `openBackend` of backends/registry.ts; undefined for a name nobody knows. */
  readonly openBackend: (name: string) => Promise<Backend> | undefined;
  readonly backendNames: readonly string[];
  /** `--metrics-config`: what is counted beyond the plain counters. */
  readonly statistics?: StatisticsOptions;
  /** Metrics of models' own, shared with `createModelHost`; absent = there are none. */
  readonly customMetrics?: CustomMetrics;
  /** `TRITONSERVER_DELAY_SCHEDULER`: a batcher waits for so many requests before its first batch. */
  readonly delaySchedulerCount?: number;
  /** `TRITONSERVER_BACKLOG_DELAY_SCHEDULER`: as many must wait in the backlog of a sequence batcher as well. */
  readonly backlogDelayCount?: number;
  /** Agents of `--repoagent-directory`; absent = only those built in. */
  readonly repositoryAgents?: RepositoryAgents;
  /** `MachineDevices` of backends/device.ts; absent = nothing is known of any device but the CPU. */
  readonly devices?: Devices;
  /** `createRegionOpener` of backends/shared_memory.ts; absent = no shared memory. */
  readonly regionOpener?: RegionOpener;
  /** Traces requests; whoever made it closes it when the last answer was sent. Absent = no tracing. */
  readonly tracer?: Tracer;
  /** The settings of `log`; absent = they cannot be changed. */
  readonly logControl?: LogControl;
}

/**
 * Creates the serving engine; nothing is read or loaded before `start`.
 * @throws ServerError INVALID_ARG for options that contradict each other.
 */
export function createInferenceServer(
  options: ServerOptions,
  parts: InferenceServerParts,
): InferenceServer {
  const temporaryFolders = new TemporaryFolders();
  return new Engine(options, {
    ...parts,
    temporaryFolders,
    watch: (onChange) =>
      watchFolders(
        options.modelRepositories,
        moduleLog(parts.log, "repository_watch.ts"),
        onChange,
      ),
    repository: openModelRepositories(options, moduleLog(parts.log, "model_repository.ts"), {
      temporaryFolders,
      agents: parts.repositoryAgents,
    }),
    completeConfig: (source, backend, attempt) =>
      completeModelConfig(source, backend, options, { devices: parts.devices, ...attempt }),
    loadBatchStrategy,
    statistics: parts.statistics ?? {},
    responseCache: createResponseCache(options, parts.clock),
    delaySchedulerCount: parts.delaySchedulerCount ?? 0,
    backlogDelayCount: parts.backlogDelayCount,
  });
}
