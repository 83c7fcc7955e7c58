import {
  type ModelDynamicBatching,
  type ModelQueuePolicy,
  ModelQueuePolicy_TimeoutAction,
} from "../../../proto/gen/model_config_pb.ts";

/** What happens to requests that wait in one priority level (scheduling.md §2.2). */
export interface QueuePolicy {
  readonly timeoutAction: "REJECT" | "DELAY";
  /** Microseconds; 0 = none. */
  readonly defaultTimeoutUs: number;
  readonly allowTimeoutOverride: boolean;
  /** 0 = no limit. */
  readonly maxQueueSize: number;
}

/** The dynamic batcher's configuration (scheduling.md §2.1). */
export interface BatchRules {
  readonly maxBatchSize: number;
  readonly preferredBatchSizes: ReadonlySet<number>;
  readonly largestPreferred: number;
  /** 0 = send what is there. */
  readonly maxQueueDelayMs: number;
  readonly preservesOrdering: boolean;
  readonly defaultPolicy: QueuePolicy;
  /** Policies of the levels that have one of their own. */
  readonly levelPolicies: ReadonlyMap<number, QueuePolicy>;
  /** Number of priority levels; 0 = priorities are ignored. */
  readonly priorityLevels: number;
  readonly defaultPriorityLevel: number;
}

/** Prepares the configuration of a dynamic batcher. */
export function createBatchRules(
  batching: ModelDynamicBatching,
  maxBatchSize: number,
): BatchRules {
  const priorityLevels = Number(batching.priorityLevels);
  const ownPolicies = priorityLevels === 0 ? [] : Object.entries(batching.priorityQueuePolicy);
  return {
    maxBatchSize: Math.max(1, maxBatchSize),
    preferredBatchSizes: new Set(batching.preferredBatchSize),
    largestPreferred: Math.max(0, ...batching.preferredBatchSize),
    maxQueueDelayMs: Number(batching.maxQueueDelayMicroseconds) / 1000,
    preservesOrdering: batching.preserveOrdering,
    defaultPolicy: queuePolicy(batching.defaultQueuePolicy),
    levelPolicies: new Map(
      ownPolicies.map(([level, policy]) => [Number(level), queuePolicy(policy)]),
    ),
    priorityLevels,
    defaultPriorityLevel: Number(batching.defaultPriorityLevel),
  };
}

function queuePolicy(policy: ModelQueuePolicy | undefined): QueuePolicy {
  return {
    timeoutAction: policy?.timeoutAction === ModelQueuePolicy_TimeoutAction.DELAY
      ? "DELAY"
      : "REJECT",
    defaultTimeoutUs: Number(policy?.defaultTimeoutMicroseconds ?? 0n),
    allowTimeoutOverride: policy?.allowTimeoutOverride ?? false,
    maxQueueSize: policy?.maxQueueSize ?? 0,
  };
}
