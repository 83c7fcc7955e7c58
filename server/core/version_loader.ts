import { clone } from "@bufbuild/protobuf";
import type {
  Backend,
  BackendModel,
  InstancePlacement,
  ModelInstance,
} from "../../backends/backend.ts";
import { type ModelConfig, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import type { InferResponse } from "../../proto/infer.ts";
import { isEnsemble } from "../../proto/model_config_normalize.ts";
import { ServerError } from "../../proto/status.ts";
import type { BackendTable } from "./backend_table.ts";
import type { loadBatchStrategy } from "./batch_strategy_loader.ts";
import type { Clock } from "./clock.ts";
import { type ConfigSource, openModel, unknownBackendError } from "./config_complete.ts";
import { readLabels } from "./config_labels.ts";
import {
  checkGpuLimit,
  type CompleteConfig,
  completeForAttempt,
  countFallbacks,
  countOnGpu,
  type GpuLimitParts,
  type LoadAttempt,
  loadOnDevices,
} from "./device_loading.ts";
import { loadEnsemble } from "./ensemble/ensemble_loader.ts";
import { planInstances } from "./instance_plan.ts";
import { InstanceSet } from "./instance_set.ts";
import { type Log, moduleLog } from "./log.ts";
import { Model } from "./model.ts";
import { splitModelId } from "./model_id.ts";
import { modelStatisticsOptions } from "./model_metrics.ts";
import type { ModelRegistry } from "./model_registry.ts";
import type { RepositoryModel } from "./model_repository.ts";
import type { ResponseCache } from "./response_cache.ts";
import { CachingScheduler, type CachingSchedulerParts } from "./scheduler/caching_scheduler.ts";
import { createScheduler } from "./scheduler/create_scheduler.ts";
import { InstancePool } from "./scheduler/instance_pool.ts";
import type { RateLimiter } from "./scheduler/rate_limiter.ts";
import { createStateRules } from "./scheduler/sequence_state.ts";
import { type StatisticsOptions, VersionStatistics } from "./statistics.ts";
import { createTensorRules } from "./tensor_rules.ts";
import { warmUp } from "./warmup.ts";
import { readWarmupSamples } from "./warmup_sample.ts";

/** What loading a version works with. */
export interface VersionLoaderParts extends GpuLimitParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly backends: BackendTable;
  readonly backendNames: readonly string[];
  readonly statistics: StatisticsOptions;
  /** Completes and checks the configuration with the help of the backend. */
  readonly completeConfig: CompleteConfig;
  /** `TRITONSERVER_DELAY_SCHEDULER`; 0 = off. */
  readonly delaySchedulerCount: number;
  /** `TRITONSERVER_BACKLOG_DELAY_SCHEDULER`; absent = off. */
  readonly backlogDelayCount?: number | undefined;
  /** Of models that enable it; absent = there is none. */
  readonly responseCache?: ResponseCache | undefined;
  /** Looks for custom batching beside the model; absent = there is none. */
  readonly loadBatchStrategy?: typeof loadBatchStrategy | undefined;
  /** Its subfolders are those of backends: one may hold a batching strategy. */
  readonly backendDirectory?: string | undefined;
  /** Where ensembles find the models they are composed of. */
  readonly registry: ModelRegistry;
  /** Shares resources among the instances of all models; undefined = off. */
  readonly rateLimiter: RateLimiter | undefined;
  /** Collects what frees the buffers behind a response. */
  readonly releases: WeakMap<InferResponse, () => void>;
}

/** Loads one version of a model. @throws ServerError; nothing of a failed load stays behind. */
export async function loadVersion(
  model: RepositoryModel,
  version: number,
  parts: VersionLoaderParts,
): Promise<Model> {
  if (isEnsemble(model.config)) return await loadEnsemble(model, version, parts);
  const log = moduleLog(parts.log, "device_loading.ts");
  return await loadOnDevices(
    model.name,
    log,
    (attempt) => loadOnce(model, version, { ...parts, attempt }),
  );
}

async function loadOnce(
  model: RepositoryModel,
  version: number,
  parts: VersionLoaderParts & { readonly attempt: LoadAttempt },
): Promise<Model> {
  const { source, backend } = await prepareSource(model, version, parts);
  const { config } = source;
  const rules = createTensorRules(config);
  const { labels } = await readLabels(config, source);

  await using disposables = new AsyncDisposableStack();
  const planned = planInstances(config);
  const rates = disposables.use(parts.rateLimiter?.addModel(config, planned, source.positions));
  const backendModel = disposables.use(await openModel(source, backend));
  const strategy = await parts.loadBatchStrategy?.(source, strategyParts(model, parts));
  const batchStrategy = disposables.use(strategy);
  const stateRules = await createStateRules(config, source.modelDirectory);
  const samples = await readWarmupSamples({ ...source, rules, stateRules });
  const partition = createPartition(config, parts);
  const { namespace } = splitModelId(model.name);
  const statistics = createStatistics(source, { ...parts, namespace, isCached: !!partition });
  const { clock, delaySchedulerCount } = parts;
  const warmup = { config, samples, observer: statistics, clock, log: warmupLog(parts) };
  const instanceSet = disposables.use(
    new InstanceSet({
      create: (placement) => createInstance(backendModel, placement, { ...parts, warmup }),
      rates,
      clock,
      log: moduleLog(parts.log, "instance_set.ts"),
    }),
  );
  await instanceSet.fill(planned);
  const poolParts = { clock, observer: statistics, ...(rates === undefined ? {} : { rates }) };
  const running = createScheduler(config, {
    instances: instanceSet.instances,
    createPool: (pooled) => new InstancePool({ instances: pooled, ...poolParts }),
    clock,
    observer: statistics,
    rules,
    delaySchedulerCount,
    backlogDelayCount: parts.backlogDelayCount ?? 0,
    stateRules,
    batchStrategy,
  });
  instanceSet.serve(running);
  const cacheParts = {
    observer: statistics,
    clock,
    log: moduleLog(parts.log, "response_cache.ts"),
  };
  const cached = addCache(config, partition && { scheduler: running, partition, ...cacheParts });
  disposables.move();
  return new Model({
    version,
    config,
    rules,
    labels,
    statistics,
    scheduler: cached ?? running,
    instances: [],
    instanceSet,
    failedDevices: parts.attempt.failed,
    backendModel,
    clock,
    log: moduleLog(parts.log, "model.ts"),
    releases: parts.releases,
    batchStrategy,
    ...(rates === undefined ? {} : { rates }),
  });
}

/** The version with its configuration completed and checked, and its backend. @throws ServerError */
async function prepareSource(
  model: RepositoryModel,
  version: number,
  parts: VersionLoaderParts & { readonly attempt: LoadAttempt },
): Promise<{ readonly source: ConfigSource; readonly backend: Backend }> {
  const source = createSource(model, version);
  const backend = await parts.backends.open(source.config.backend);
  if (backend === undefined) {
    throw unknownBackendError(source.config, parts.backendNames, model.positions);
  }
  const log = moduleLog(parts.log, "device_loading.ts");
  await completeForAttempt(source, backend, { ...parts, log });
  return { source, backend };
}

function strategyParts({ isUploaded = false }: RepositoryModel, parts: VersionLoaderParts) {
  const { clock, backendDirectory } = parts;
  const log = moduleLog(parts.log, "batch_strategy_loader.ts");
  return { clock, log, isUploaded, backendDirectory };
}

function createPartition({ responseCache }: ModelConfig, parts: VersionLoaderParts) {
  return responseCache?.enable ? parts.responseCache?.createPartition() : undefined;
}

/** A scheduler before the given one, if there is a cache for it. */
function addCache(
  { schedulingChoice: choice }: ModelConfig,
  parts: CachingSchedulerParts | undefined,
): CachingScheduler | undefined {
  if (parts === undefined) return undefined;
  const preservesOrdering = choice.case === "dynamicBatching" && choice.value.preserveOrdering;
  return new CachingScheduler({ ...parts, preservesOrdering });
}

function createSource(model: RepositoryModel, version: number): ConfigSource {
  return {
    name: splitModelId(model.name).name,
    version,
    modelDirectory: model.directory,
    versionDirectory: `${model.directory}/${version}`,
    // Each version completes its own configuration: their files may differ.
    config: clone(ModelConfigSchema, model.config),
    positions: model.positions,
  };
}

function createStatistics(
  { name, version, config }: ConfigSource,
  { clock, log, statistics, namespace, isCached, attempt }: VersionLoaderParts & {
    readonly attempt: LoadAttempt;
    readonly namespace: string;
    readonly isCached: boolean;
  },
): VersionStatistics {
  return new VersionStatistics({
    model: name,
    namespace,
    version,
    tags: config.metricTags,
    clock,
    statistics: modelStatisticsOptions(config, statistics, moduleLog(log, "model.ts")),
    decoupled: config.modelTransactionPolicy?.decoupled ?? false,
    cached: isCached,
    kindFallbackCount: countFallbacks(attempt),
  });
}

function warmupLog({ log }: VersionLoaderParts): Log {
  return moduleLog(log, "warmup.ts");
}

/** Creates an instance that is ready to serve. */
async function createInstance(
  backendModel: BackendModel,
  placement: InstancePlacement,
  { warmup, ...limits }: GpuLimitParts & {
    readonly warmup: Parameters<typeof warmUp>[1] & { readonly observer: VersionStatistics };
  },
): Promise<ModelInstance> {
  await checkGpuLimit(warmup.config.name, placement, limits);
  let instance: ModelInstance;
  try {
    instance = await backendModel.createInstance(placement);
  } catch (error) {
    throw ServerError.from(error);
  }
  try {
    await countOnGpu(warmup.observer, placement, limits);
    await warmUp(instance, warmup);
  } catch (reason) {
    await instance[Symbol.asyncDispose]();
    throw reason;
  }
  return instance;
}
