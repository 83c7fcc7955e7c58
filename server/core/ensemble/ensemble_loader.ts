import { clone, create } from "@bufbuild/protobuf";
import {
  type ModelConfig,
  ModelConfigSchema,
  ModelTransactionPolicySchema,
} from "../../../proto/gen/model_config_pb.ts";
import type { InferResponse } from "../../../proto/infer.ts";
import {
  checkModelIo,
  configError,
  type ConfigIssue,
  type ConfigPositions,
} from "../../../proto/model_config.ts";
import { isEnsemble } from "../../../proto/model_config_normalize.ts";
import type { Clock } from "../clock.ts";
import { type OutputLabels, readLabels } from "../config_labels.ts";
import { type Log, moduleLog } from "../log.ts";
import { Model } from "../model.ts";
import { splitModelId } from "../model_id.ts";
import { modelStatisticsOptions } from "../model_metrics.ts";
import type { ModelRegistry } from "../model_registry.ts";
import type { RepositoryModel } from "../model_repository.ts";
import { releaseResponse } from "../model_response.ts";
import type { ResponseCache } from "../response_cache.ts";
import { CachingScheduler } from "../scheduler/caching_scheduler.ts";
import { requestPrefix } from "../scheduler/job.ts";
import type { Scheduler } from "../scheduler/scheduler.ts";
import { type StatisticsOptions, VersionStatistics } from "../statistics.ts";
import { createTensorRules } from "../tensor_rules.ts";
import { bindStep, type BoundStep, type StepModel } from "./bound_step.ts";
import {
  checkComposition,
  type ComposingModel,
  isDecoupledComposition,
} from "./composition_check.ts";
import { isNamespace } from "./composing_models.ts";
import { createEnsembleGraph, type EnsembleGraph, type EnsembleStep } from "./ensemble_graph.ts";
import type { EnsembleOutputs } from "./ensemble_response.ts";
import { EnsembleScheduler } from "./ensemble_scheduler.ts";
import { GATE_TIMEOUT_MS, StepGate } from "./step_gate.ts";

/** What loading a version of an ensemble works with. */
export interface EnsembleLoaderParts {
  /** Where the composing models are. */
  readonly registry: ModelRegistry;
  readonly clock: Clock;
  readonly log: Log;
  readonly statistics: StatisticsOptions;
  readonly responseCache?: ResponseCache | undefined;
  readonly releases: WeakMap<InferResponse, () => void>;
}

/**
 * Checks an ensemble against the models that are loaded now; other models pass.
 * @throws ServerError with everything that is wrong (config.md §7.2).
 */
export function checkEnsembleModels(model: RepositoryModel, registry: ModelRegistry): void {
  const { config, positions } = model;
  if (!isEnsemble(config)) return;
  const issues: ConfigIssue[] = [
    ...checkModelIo(config),
    ...checkComposition(config, {
      find: (step) => findComposingModel(step, registry),
      modelNames: registry.entries().map(({ modelName }) => modelName),
    }),
  ];
  if (issues.length > 0) throw configError(issues, positions);
}

/**
 * Loads one version of an ensemble: binds each step to the model version that serves now, and holds it until the
 * ensemble's version is stopped. @throws ServerError; nothing of a failed load stays behind.
 */
export async function loadEnsemble(
  source: RepositoryModel,
  version: number,
  parts: EnsembleLoaderParts,
): Promise<Model> {
  const config = clone(ModelConfigSchema, source.config);
  const own = await readLabels(config, { name: config.name, modelDirectory: source.directory });
  if (own.issues.length > 0) throw configError(own.issues, source.positions);
  // From here on nothing waits: what was checked is what is bound.
  checkEnsembleModels(source, parts.registry);
  const graph = createEnsembleGraph(config);
  const models = graph.steps.map((step) => findModel(step, parts.registry)!);
  completeConfig(config, models);
  checkResponseCache(config, source.positions);
  const statistics = new VersionStatistics({
    model: config.name,
    namespace: splitModelId(source.name).namespace,
    version,
    tags: config.metricTags,
    clock: parts.clock,
    statistics: modelStatisticsOptions(config, parts.statistics, moduleLog(parts.log, "model.ts")),
    decoupled: config.modelTransactionPolicy!.decoupled,
    cached: isCached(config, parts),
  });
  const scheduler = createScheduler(config, { graph, models, statistics, parts });
  return new Model({
    version,
    config,
    rules: createTensorRules(config),
    labels: inheritLabels(own.labels, { config, graph, models }),
    statistics,
    scheduler,
    instances: [],
    composing: [...new Set(models)],
    clock: parts.clock,
    log: moduleLog(parts.log, "model.ts"),
    releases: parts.releases,
  });
}

/** The version that a step means, if it serves; no version, or 0 where there is none, is the latest. */
function findModel(
  { modelId, modelVersion }: EnsembleStep,
  registry: ModelRegistry,
): Model | undefined {
  const entry = registry.get(modelId);
  if (modelVersion < 0n) return entry?.latest;
  const known = entry?.version(Number(modelVersion));
  if (known?.state === "READY" && known.model !== undefined) return known.model;
  return modelVersion === 0n ? entry?.latest : undefined;
}

function findComposingModel(step: EnsembleStep, registry: ModelRegistry): ComposingModel {
  const model = findModel(step, registry);
  if (model !== undefined) return { config: model.config };
  const entry = registry.get(step.modelId);
  if (entry?.latest !== undefined) {
    return { reason: `whose required version ${step.modelVersion} is not loaded.` };
  }
  const versions = entry?.versions() ?? [];
  const failure = registry.readFailure(step.modelId)?.reason;
  if (versions.length === 0 && failure === undefined) return { isUnknown: true };
  const states = versions.map(({ version, state, reason }) =>
    `version ${version} is at ${state} state: ${reason};`
  );
  return {
    reason: `which has no loaded version. Model '${step.modelName}' loading failed with error: ` +
      (failure ?? states.join("")),
  };
}

/** What the composing models say about the ensemble (config.md §7.2). */
function completeConfig(config: ModelConfig, models: readonly Model[]): void {
  const decoupled = isDecoupledComposition(models.map((model) => model.config));
  config.modelTransactionPolicy = create(ModelTransactionPolicySchema, { decoupled });
  const { schedulingChoice } = config;
  if (schedulingChoice.case !== "ensembleScheduling") return;
  for (const step of schedulingChoice.value.step) {
    if (!isNamespace(step.modelNamespace)) step.modelNamespace = "";
  }
}

/** What a configuration says about decoupled responses itself was checked before: here it comes from the steps. */
function checkResponseCache(config: ModelConfig, positions: ConfigPositions | undefined): void {
  if (config.responseCache?.enable !== true || !config.modelTransactionPolicy!.decoupled) return;
  const message =
    `Response Cache does not currently support model ${config.name} with 'decoupled' transaction ` +
    `policy. Please disable the response cache.`;
  const hint = "a model of the ensemble is decoupled";
  throw configError([{ path: "response_cache", message, hint }], positions);
}

interface SchedulerSource {
  readonly graph: EnsembleGraph;
  readonly models: readonly Model[];
  readonly statistics: VersionStatistics;
  readonly parts: EnsembleLoaderParts;
}

function createScheduler(config: ModelConfig, source: SchedulerSource): Scheduler {
  const { graph, models, statistics, parts } = source;
  const { clock } = parts;
  const log = moduleLog(parts.log, "ensemble_scheduler.ts");
  const returns = [...new Set(models)].map((model) => model.hold());
  const ensemble = new EnsembleScheduler({
    name: config.name,
    graph,
    boundSteps: bindSteps(config, source),
    outputs: ensembleOutputs(config),
    isBatched: config.maxBatchSize > 0,
    inputNames: config.input.map(({ name }) => name),
    isDecoupled: config.modelTransactionPolicy!.decoupled,
    onAbsentOutput: (name, { id }) =>
      log.verbose(1, `${requestPrefix(id)}Composing models did not output tensor ${name}`),
    clock,
    observer: statistics,
    releaseModels: () => returns.forEach((giveBack) => giveBack()),
  });
  if (!isCached(config, parts)) return ensemble;
  return new CachingScheduler({
    scheduler: ensemble,
    partition: parts.responseCache!.createPartition(),
    observer: statistics,
    clock,
    log: moduleLog(parts.log, "response_cache.ts"),
  });
}

function isCached({ responseCache }: ModelConfig, parts: EnsembleLoaderParts): boolean {
  return responseCache?.enable === true && parts.responseCache !== undefined;
}

function bindSteps(config: ModelConfig, { graph, models, parts }: SchedulerSource): BoundStep[] {
  const { schedulingChoice } = config;
  const limit = schedulingChoice.case === "ensembleScheduling"
    ? schedulingChoice.value.maxInflightRequests
    : 0;
  const log = moduleLog(parts.log, "ensemble_scheduler.ts");
  if (limit > 0) {
    log.info(`Ensemble model '${config.name}' configured with max_inflight_requests: ${limit}`);
  }
  return graph.steps.map((step) => {
    const gate = limit === 0 ? undefined : new StepGate({
      limit,
      clock: parts.clock,
      onTimeout: () =>
        log.error(
          `ensemble '${config.name}', step ${step.index} (model '${step.modelName}'): a request ` +
            `waited ${
              GATE_TIMEOUT_MS / 1000
            } s for one of ${limit} in flight to end; it is sent now`,
        ),
    });
    return bindStep(step, stepModel(models[step.index]!, parts), gate);
  });
}

function stepModel(model: Model, { releases }: EnsembleLoaderParts): StepModel {
  return {
    config: model.config,
    versionText: model.versionText,
    inferStream: (request, receive, options) => model.inferStream(request, receive, options),
    releaseResponse: (response) => releaseResponse(releases, response),
  };
}

function ensembleOutputs({ output, maxBatchSize }: ModelConfig): EnsembleOutputs {
  const isBatched = maxBatchSize > 0;
  return new Map(output.map(({ name, dims, reshape }) => {
    const inner = (reshape?.shape ?? dims).map(Number);
    return [name, { name, dims: inner, isBatched }];
  }));
}

/** Outputs without a label file of their own have the labels of the model that writes them. */
function inheritLabels(
  own: OutputLabels,
  { config, graph, models }: Pick<SchedulerSource, "graph" | "models"> & { config: ModelConfig },
): OutputLabels {
  const labels = new Map(own);
  for (const { name } of config.output) {
    const step = graph.writers.get(name);
    if (step === undefined || labels.has(name)) continue;
    const inner = step.outputs.find(({ outer }) => outer === name)!.inner;
    const inherited = models[step.index]!.labels.get(inner);
    if (inherited !== undefined) labels.set(name, inherited);
  }
  return labels;
}
