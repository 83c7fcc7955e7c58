import type { ModelInstance } from "../../../backends/backend.ts";
import type { ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import type { Clock } from "../clock.ts";
import type { TensorRules } from "../tensor_rules.ts";
import { createBatchRules } from "./batch_rules.ts";
import type { LoadedBatchStrategy } from "./batch_strategy.ts";
import { DefaultScheduler } from "./default_scheduler.ts";
import { DynamicBatcher } from "./dynamic_batcher.ts";
import type { InstancePool, JobObserver } from "./instance_pool.ts";
import type { InstanceScheduler } from "./scheduler.ts";
import { SequenceBatcher } from "./sequence_batcher.ts";
import { createSequenceRules } from "./sequence_rules.ts";
import type { StateRules } from "./sequence_state.ts";

/** What every scheduler works with. */
export interface SchedulerParts {
  readonly instances: readonly ModelInstance[];
  /** A pool over some or all of the instances; no instance may be in two pools. */
  readonly createPool: (instances: readonly ModelInstance[]) => InstancePool;
  readonly clock: Clock;
  readonly observer: JobObserver;
  readonly rules: TensorRules;
  /** Requests that a batcher waits for before its first batch; 0 = none (`TRITONSERVER_DELAY_SCHEDULER`). */
  readonly delaySchedulerCount: number;
  /** Requests that a sequence batcher then waits for in its backlog (`TRITONSERVER_BACKLOG_DELAY_SCHEDULER`). */
  readonly backlogDelayCount?: number;
  /** Implicit states of a sequence model. */
  readonly stateRules?: StateRules | undefined;
  /** Custom batching of a dynamic batcher; absent = none. */
  readonly batchStrategy?: LoadedBatchStrategy | undefined;
}

/** The scheduler that a complete configuration asks for (scheduling.md §0). */
export function createScheduler(config: ModelConfig, parts: SchedulerParts): InstanceScheduler {
  const { schedulingChoice, maxBatchSize } = config;
  if (schedulingChoice.case === "sequenceBatching") {
    const { value: batching } = schedulingChoice;
    const { backlogDelayCount = 0 } = parts;
    const rules = createSequenceRules(config, batching);
    return new SequenceBatcher(rules, { ...parts, batching, backlogDelayCount });
  }
  const pooled = { ...parts, pool: parts.createPool(parts.instances) };
  if (schedulingChoice.case !== "dynamicBatching") return new DefaultScheduler(pooled);
  return new DynamicBatcher(createBatchRules(schedulingChoice.value, maxBatchSize), pooled);
}
