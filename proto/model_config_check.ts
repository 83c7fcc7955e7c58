import type { ModelConfig, ModelDynamicBatching, ModelQueuePolicy } from "./gen/model_config_pb.ts";
import { ModelQueuePolicy_TimeoutAction } from "./gen/model_config_pb.ts";
import { FILE_BACKENDS, PLATFORM_BACKENDS } from "./model_config_autofill.ts";
import { checkEnsemble } from "./model_config_check_ensemble.ts";
import { checkSequenceBatching } from "./model_config_check_sequence.ts";
import type { ConfigIssue } from "./model_config_issue.ts";
import { isEnsemble } from "./model_config_normalize.ts";

const ENSEMBLE_PLATFORM = "ensemble";

/**
 * The checks of config.md §6.1, all of them in the reference's order, on a normalised configuration.
 * What they find makes the model absent: nothing of it is loaded.
 */
export function checkModelConfig(config: ModelConfig): ConfigIssue[] {
  const issues: ConfigIssue[] = [];
  const name = config.name;
  // Whether the server has a cache does not matter here.
  const usesCache = config.responseCache?.enable === true;
  const add: AddIssue = (path, message, hint) =>
    void issues.push({ path, message, ...(hint === undefined ? {} : { hint }) });
  if (name === "") add("name", "model configuration must specify 'name'");
  checkPlatform(config, add);
  if (config.maxBatchSize < 0) {
    add("max_batch_size", `'max_batch_size' must be non-negative value for ${name}`);
  }
  if (config.versionPolicy === undefined) {
    add("version_policy", `must specify 'version policy' for ${name}`);
  }
  const scheduling = config.schedulingChoice;
  if (scheduling.case === "dynamicBatching") checkDynamicBatching(config, scheduling.value, add);
  if (scheduling.case === "sequenceBatching") {
    if (usesCache) {
      add(
        "response_cache",
        `Response Cache does not currently support model ${name} with sequence batching scheduler. ` +
          `Please disable the response cache.`,
      );
    }
    issues.push(...checkSequenceBatching(config, scheduling.value));
  }
  if (scheduling.case === "ensembleScheduling") {
    issues.push(...checkEnsemble(config, scheduling.value));
  } else if (config.platform === ENSEMBLE_PLATFORM) {
    add(
      "platform",
      `ensemble scheduling must be set for ensemble ${name} whose platform is ensemble`,
    );
  }
  if (usesCache && config.modelTransactionPolicy?.decoupled) {
    add(
      "model_transaction_policy.decoupled",
      `Response Cache does not currently support model ${name} with 'decoupled' transaction policy. ` +
        `Please disable the response cache.`,
    );
  }
  checkMetrics(config, add);
  return issues;
}

type AddIssue = (path: string, message: string, hint?: string) => void;

function checkPlatform(config: ModelConfig, add: AddIssue): void {
  const { name, platform, backend } = config;
  if (backend === "") {
    if (platform === ENSEMBLE_PLATFORM || isEnsemble(config)) return;
    const hint = FILE_BACKENDS.has(platform)
      ? `that is a backend: backend: "${platform}" names it`
      : `the platforms are ${[...PLATFORM_BACKENDS.keys()].join(", ")}`;
    add("platform", `unexpected platform type '${platform}' for ${name}`, hint);
  } else if (platform === ENSEMBLE_PLATFORM) {
    add(
      "backend",
      `Ensemble model '${name}' must have platform type 'ensemble' and empty backend type`,
    );
  } else {
    const owner = PLATFORM_BACKENDS.get(platform);
    const hasPlatforms = [...PLATFORM_BACKENDS.values()].includes(backend);
    if (owner === backend || (owner === undefined && !hasPlatforms)) return;
    add("platform", `unexpected 'platform' and 'backend' pair, got:${platform}, ${backend}`);
  }
}

function checkDynamicBatching(
  config: ModelConfig,
  batching: ModelDynamicBatching,
  add: AddIssue,
): void {
  const name = config.name;
  for (const [index, size] of batching.preferredBatchSize.entries()) {
    const path = `dynamic_batching.preferred_batch_size[${index}]`;
    if (size <= 0) add(path, `dynamic batching preferred size must be positive for ${name}`);
    else if (size > config.maxBatchSize) {
      add(path, `dynamic batching preferred size must be <= max batch size for ${name}`);
    }
  }
  const levels = batching.priorityLevels;
  const isLevel = (level: bigint) => level >= 1n && level <= levels;
  if (levels !== 0n && !isLevel(batching.defaultPriorityLevel)) {
    add(
      "dynamic_batching.default_priority_level",
      `default priority level must be in range [1, ${levels}] for ${name}`,
    );
  }
  const levelPolicies = Object.entries(batching.priorityQueuePolicy);
  for (const [level] of levelPolicies) {
    if (levels === 0n || isLevel(BigInt(level))) continue;
    add(
      `dynamic_batching.priority_queue_policy[${level}]`,
      `priority queue policy must have priority level in range [1, ${levels}] for ${name}`,
    );
  }
  if (!batching.preserveOrdering) return;
  if (levels > 1n) {
    add(
      "dynamic_batching.priority_levels",
      `Only one priority level is allowed when 'preserve_ordering' is true for ${name}`,
    );
  }
  const policies: [string, ModelQueuePolicy | undefined][] = [
    ["default_queue_policy", batching.defaultQueuePolicy],
    ...levelPolicies.map(([level, policy]): [string, ModelQueuePolicy] => [
      `priority_queue_policy[${level}]`,
      policy,
    ]),
  ];
  for (const [path, policy] of policies) {
    if (policy?.timeoutAction !== ModelQueuePolicy_TimeoutAction.DELAY) continue;
    if (policy.defaultTimeoutMicroseconds === 0n) continue;
    add(
      `dynamic_batching.${path}.timeout_action`,
      `Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for ${name}`,
    );
  }
}

function checkMetrics(config: ModelConfig, add: AddIssue): void {
  for (const [index, control] of (config.modelMetrics?.metricControl ?? []).entries()) {
    const path = `model_metrics.metric_control[${index}]`;
    const suffix = ` for ${config.name}`;
    if (control.metricIdentifier === undefined) {
      add(path, `metric control must specify 'metric_identifier'${suffix}`);
    } else if (control.metricIdentifier.family === "") {
      add(
        `${path}.metric_identifier`,
        `metric identifier must specify non-empty 'family'${suffix}`,
      );
    }
    if (control.metricOptions.case !== "histogramOptions") {
      add(path, `metric control must specify 'histogram_options'${suffix}`);
    } else if (control.metricOptions.value.buckets.length === 0) {
      add(
        `${path}.histogram_options`,
        `histogram options must specify non-empty 'buckets'${suffix}`,
      );
    }
  }
}
