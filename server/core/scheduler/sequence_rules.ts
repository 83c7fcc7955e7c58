import type { ModelConfig, ModelSequenceBatching } from "../../../proto/gen/model_config_pb.ts";
import type { BatchRules } from "./batch_rules.ts";

/** The sequence batcher's configuration, prepared once at load (scheduling.md §3 and §4). */
export interface SequenceRules {
  readonly model: string;
  readonly strategy: "direct" | "oldest";
  /** Sequences that one instance serves at a time. */
  readonly slotCount: number;
  /** A sequence that sends nothing for so long is forgotten. */
  readonly maxIdleMs: number;
  /** One request may ask for many turns, and needs no correlation id. */
  readonly isIterative: boolean;
  /** Direct: part of the slots that must have a request for the batch to go before the delay is over. */
  readonly minimumSlotUtilization: number;
  /** Sizes and delay of batches. */
  readonly batch: Pick<
    BatchRules,
    "maxBatchSize" | "preferredBatchSizes" | "largestPreferred" | "maxQueueDelayMs"
  >;
}

/** Prepares the configuration of a sequence batcher. */
export function createSequenceRules(
  { name, maxBatchSize }: Pick<ModelConfig, "name" | "maxBatchSize">,
  batching: ModelSequenceBatching,
): SequenceRules {
  const { strategyChoice: strategy } = batching;
  const oldest = strategy.case === "oldest" ? strategy.value : undefined;
  const direct = strategy.case === "direct" ? strategy.value : undefined;
  const rows = Math.max(1, maxBatchSize);
  const preferred = oldest?.preferredBatchSize ?? [];
  const candidates = oldest?.maxCandidateSequences ?? 0;
  const delayUs = (oldest ?? direct)?.maxQueueDelayMicroseconds ?? 0n;
  return {
    model: name,
    strategy: oldest === undefined ? "direct" : "oldest",
    slotCount: candidates > 0 ? candidates : rows,
    maxIdleMs: Number(batching.maxSequenceIdleMicroseconds) / 1000,
    isIterative: batching.iterativeSequence,
    minimumSlotUtilization: direct?.minimumSlotUtilization ?? 0,
    batch: {
      maxBatchSize: rows,
      preferredBatchSizes: new Set(preferred),
      largestPreferred: Math.max(0, ...preferred),
      maxQueueDelayMs: Number(delayUs) / 1000,
    },
  };
}
