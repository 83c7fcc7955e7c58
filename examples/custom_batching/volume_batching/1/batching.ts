/** Limits the bytes of a batch: the inputs of its requests have MAX_BATCH_VOLUME_BYTES at most, all in all. */
import type { BatchRequest, BatchStrategyContext } from "../../../../mod.ts";

interface Volume {
  leftBytes: number;
}

/** Reads the limit once; what is returned here is what every `start` gets. */
export function initialize({ parameters }: BatchStrategyContext): number {
  const text = parameters.MAX_BATCH_VOLUME_BYTES;
  if (text === undefined) {
    const message = "Unable to find MAX_BATCH_VOLUME_BYTES parameter in model config";
    throw Object.assign(new Error(message), { code: "NOT_FOUND" });
  }
  if (!/^\d+$/.test(text)) {
    throw new Error(`MAX_BATCH_VOLUME_BYTES must be a number, got '${text}'`);
  }
  return Number(text);
}

export function start(limitBytes: number): Volume {
  return { leftBytes: limitBytes };
}

export function includeRequest(request: BatchRequest, batch: Volume): boolean {
  const askedBytes = request.inputs.reduce((sum, { byteSize }) => sum + byteSize, 0);
  if (askedBytes > batch.leftBytes) return false;
  batch.leftBytes -= askedBytes;
  return true;
}
