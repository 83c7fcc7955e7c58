import { create } from "@bufbuild/protobuf";
import {
  type ModelConfig,
  ModelInstanceGroup_Kind,
  ModelInstanceGroupSchema,
  ModelOptimizationPolicy_PinnedMemoryBufferSchema,
  ModelOptimizationPolicySchema,
  ModelVersionPolicySchema,
} from "./gen/model_config_pb.ts";

/** Idle time after which a sequence ends, when the configuration gives none. */
const SEQUENCE_IDLE_MICROSECONDS = 1_000_000n;

const KINDS = {
  KIND_CPU: ModelInstanceGroup_Kind.CPU,
  KIND_GPU: ModelInstanceGroup_Kind.GPU,
  KIND_MODEL: ModelInstanceGroup_Kind.MODEL,
} as const;

/** Kind and number of instances when the configuration gives none. */
export interface GroupPreference {
  readonly kind: "KIND_CPU" | "KIND_GPU" | "KIND_MODEL";
  readonly count: number;
}

/** True for a model that is a graph of other models. */
export function isEnsemble(config: ModelConfig): boolean {
  return config.schedulingChoice.case === "ensembleScheduling";
}

/** Fills in the defaults of config.md §5 except those of instance groups, in place. Harmless to repeat. */
export function normalizeModelConfig(config: ModelConfig): void {
  config.versionPolicy ??= create(ModelVersionPolicySchema, {
    policyChoice: { case: "latest", value: { numVersions: 1 } },
  });
  const scheduling = config.schedulingChoice;
  if (scheduling.case === "dynamicBatching") normalizePreferred(scheduling.value, config);
  if (scheduling.case === "sequenceBatching") {
    const sequence = scheduling.value;
    if (sequence.maxSequenceIdleMicroseconds === 0n) {
      sequence.maxSequenceIdleMicroseconds = SEQUENCE_IDLE_MICROSECONDS;
    }
    const strategy = sequence.strategyChoice;
    if (strategy.case === "oldest") normalizePreferred(strategy.value, config);
  }
  if (isEnsemble(config)) return;
  const optimization = config.optimization ??= create(ModelOptimizationPolicySchema);
  optimization.inputPinnedMemory ??= enabledPinnedMemory();
  optimization.outputPinnedMemory ??= enabledPinnedMemory();
}

/**
 * Fills in what instance groups leave open (config.md §5), in place: names, counts, and for kinds that nobody has chosen
 * KIND_CPU.
 */
export function normalizeInstanceGroups(config: ModelConfig, preference: GroupPreference): void {
  if (isEnsemble(config)) return;
  if (config.instanceGroup.length === 0) {
    config.instanceGroup.push(create(ModelInstanceGroupSchema, {
      name: config.name,
      kind: KINDS[preference.kind],
      count: preference.count,
    }));
  }
  for (const [index, group] of config.instanceGroup.entries()) {
    if (group.name === "") group.name = `${config.name}_${index}`;
    const isOpen = group.kind === ModelInstanceGroup_Kind.AUTO;
    if (isOpen) group.kind = ModelInstanceGroup_Kind.CPU;
    const isPreferredKind = group.kind === KINDS[preference.kind];
    // A group that leaves its kind to the server leaves a nonsensical count to it, too; others are refused for it.
    if (group.count === 0 || (group.count < 0 && isOpen)) {
      group.count = isPreferredKind ? Math.max(preference.count, 1) : 1;
    }
  }
}

function normalizePreferred(
  batcher: { preferredBatchSize: number[] },
  config: ModelConfig,
): void {
  if (batcher.preferredBatchSize.length > 0 || config.maxBatchSize <= 0) return;
  batcher.preferredBatchSize = [config.maxBatchSize];
}

function enabledPinnedMemory() {
  return create(ModelOptimizationPolicy_PinnedMemoryBufferSchema, { enable: true });
}
