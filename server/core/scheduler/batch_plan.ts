import type { BatchComparison } from "./batch_compare.ts";
import type { BatchRules } from "./batch_rules.ts";
import type { FormingBatch, QueueScan } from "./forming_batch.ts";
import type { Job } from "./job.ts";

/** A batch that could be formed now, or how long to wait for a better one. */
export interface BatchPlan {
  /** Jobs to send; empty = none yet. */
  readonly jobs: Job[];
  /** When waiting for more requests ends, ms; Infinity = never. */
  readonly waitUntilMs: number;
}

/** What a batch is planned by. */
export interface BatchPlanContext {
  readonly rules: Pick<
    BatchRules,
    "maxBatchSize" | "preferredBatchSizes" | "largestPreferred" | "maxQueueDelayMs"
  >;
  readonly mayShare: BatchComparison | undefined;
  /** Custom batching; absent = none. */
  readonly forming?: FormingBatch | undefined;
  readonly nowMs: number;
  /** Nobody comes any more: waiting for company makes no sense. */
  readonly isLast: boolean;
}

const NOTHING: BatchPlan = { jobs: [], waitUntilMs: Infinity };

/**
 * Decides on the next batch by the rules of scheduling.md §2.4. `scan` visits the waiting requests in their order of
 * service until the function it is given returns false.
 */
export function planBatch(
  scan: QueueScan,
  context: BatchPlanContext,
): BatchPlan {
  const { maxBatchSize, preferredBatchSizes, largestPreferred, maxQueueDelayMs } = context.rules;
  const { mayShare, forming, nowMs } = context;
  forming?.begin(scan);
  const pending: Job[] = [];
  let size = 0;
  let markedCount = 0;
  let isMarked = false;
  let isFull = false;
  let oldestMs = Infinity;
  scan((job) => {
    const rows = Math.max(1, job.batchSize);
    if (pending.length > 0) {
      if (!isMarked && size + rows > largestPreferred) {
        markedCount = pending.length;
        isMarked = true;
      }
      isFull = size + rows > maxBatchSize ||
        (mayShare !== undefined && !mayShare(pending[0]!, job));
      if (isFull) return false;
    }
    if (forming !== undefined && !forming.includes(job)) {
      isFull = true;
      // Refused by an empty batch: it runs alone.
      if (pending.length > 0) return false;
    }
    pending.push(job);
    size += rows;
    oldestMs = Math.min(oldestMs, job.queueStartMs);
    if (preferredBatchSizes.has(size)) {
      markedCount = pending.length;
      isMarked = true;
    }
    return !isFull;
  });
  if (pending.length === 0) return NOTHING;
  const isLate = maxQueueDelayMs > 0 && nowMs - oldestMs >= maxQueueDelayMs;
  if (isMarked && !isLate) return { jobs: pending.slice(0, markedCount), waitUntilMs: Infinity };
  const isDue = isFull || size >= largestPreferred || isLate || maxQueueDelayMs === 0;
  if (isDue || context.isLast) return { jobs: pending, waitUntilMs: Infinity };
  return { jobs: [], waitUntilMs: oldestMs + maxQueueDelayMs };
}
