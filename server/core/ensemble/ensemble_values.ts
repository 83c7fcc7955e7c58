import type { Tensor } from "../../../proto/tensor.ts";
import type { SharedBuffers } from "./shared_buffers.ts";

/** What a step's response says about the sequence, for the steps behind it (scheduling.md §5.2). */
export interface SequenceOverride {
  readonly correlationId?: bigint | string;
  readonly sequenceStart?: boolean;
  readonly sequenceEnd?: boolean;
}

/** One value of an ensemble tensor. */
export interface EnsembleValue {
  /** Undefined = absent: an optional input that was not given, or an output that a step left out. */
  readonly tensor: Tensor | undefined;
  /** The tensor has a batch dimension. */
  readonly isBatched: boolean;
  /** What keeps its bytes; undefined = the request does. */
  readonly buffers: SharedBuffers | undefined;
  readonly sequence: SequenceOverride | undefined;
}

interface StoredValue {
  readonly value: EnsembleValue;
  useCount: number;
}

/** The values of all tensors of one request by iteration, each kept until its last use. */
export class EnsembleValues {
  readonly #useCounts: ReadonlyMap<string, number>;
  readonly #laterUseCounts: ReadonlyMap<string, number>;
  readonly #values = new Map<string, Map<number, StoredValue>>();

  /**
   * How often each value of a tensor will be taken; others are not stored.
   * @param laterUseCounts the same for iterations after the first, if that makes a difference
   */
  constructor(
    useCounts: ReadonlyMap<string, number>,
    laterUseCounts: ReadonlyMap<string, number> = useCounts,
  ) {
    this.#useCounts = useCounts;
    this.#laterUseCounts = laterUseCounts;
  }

  /** Stores a value; false when nobody needs the tensor. */
  add(tensor: string, iteration: number, value: EnsembleValue): boolean {
    const useCounts = iteration === 0 ? this.#useCounts : this.#laterUseCounts;
    const useCount = useCounts.get(tensor);
    if (useCount === undefined) return false;
    let byIteration = this.#values.get(tensor);
    if (byIteration === undefined) this.#values.set(tensor, byIteration = new Map());
    value.buffers?.retain();
    byIteration.set(iteration, { value, useCount });
    return true;
  }

  has(tensor: string, iteration: number): boolean {
    return this.#values.get(tensor)?.has(iteration) ?? false;
  }

  /** Takes a value for one use; the caller has its share of the buffers and must release it. */
  take(tensor: string, iteration: number): EnsembleValue {
    const byIteration = this.#values.get(tensor);
    const stored = byIteration?.get(iteration);
    if (stored === undefined) throw new TypeError(`Tensor '${tensor}' has no value ${iteration}`);
    if (--stored.useCount === 0) byIteration!.delete(iteration);
    else stored.value.buffers?.retain();
    return stored.value;
  }

  /** Lets go of everything that is left. */
  clear(): void {
    for (const byIteration of this.#values.values()) {
      for (const { value } of byIteration.values()) value.buffers?.release();
    }
    this.#values.clear();
  }
}

/** The override of several values together; later ones win. */
export function mergeSequence(
  before: SequenceOverride | undefined,
  after: SequenceOverride | undefined,
): SequenceOverride | undefined {
  if (before === undefined || after === undefined || before === after) return after ?? before;
  return { ...before, ...after };
}
