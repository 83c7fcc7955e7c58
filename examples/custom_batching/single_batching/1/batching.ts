/** Lets no second request into a batch. */
import type { BatchRequest } from "../../../../mod.ts";

interface Batch {
  isEmpty: boolean;
}

export function start(): Batch {
  return { isEmpty: true };
}

export function includeRequest(_request: BatchRequest, batch: Batch): boolean {
  if (!batch.isEmpty) return false;
  batch.isEmpty = false;
  return true;
}
