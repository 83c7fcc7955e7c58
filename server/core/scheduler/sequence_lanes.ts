import type { ModelInstance } from "../../../backends/backend.ts";
import type { Sequence } from "./sequence.ts";
import type { SequenceLane } from "./sequence_lane.ts";

interface LeavingLane {
  readonly instance: ModelInstance;
  readonly onLeft: (left: Promise<void>) => void;
}

/** The lanes of a sequence batcher, one per instance: who gets which slot, and instances that come and go. */
export class SequenceLanes {
  readonly #create: (instance: ModelInstance) => SequenceLane;
  /** Those that take new sequences. */
  readonly #lanes = new Map<ModelInstance, SequenceLane>();
  /** Those that only finish the sequences they have. */
  readonly #leaving = new Map<SequenceLane, LeavingLane>();

  constructor(
    instances: readonly ModelInstance[],
    create: (instance: ModelInstance) => SequenceLane,
  ) {
    this.#create = create;
    for (const instance of instances) this.add(instance);
  }

  /** All lanes, also those that leave. */
  *all(): Iterable<SequenceLane> {
    yield* this.#lanes.values();
    yield* this.#leaving.keys();
  }

  /** Gives a sequence the free slot with the lowest number of all instances (scheduling.md §3.1); false without one. */
  place(sequence: Sequence): boolean {
    let best: SequenceLane | undefined;
    for (const lane of this.#lanes.values()) {
      if (lane.slots.lowestFree < (best?.slots.lowestFree ?? Infinity)) best = lane;
    }
    if (best === undefined) return false;
    best.slots.take(sequence);
    sequence.lane = best;
    return true;
  }

  /** Takes a further instance into service. */
  add(instance: ModelInstance): void {
    if (this.#lanes.has(instance)) throw new TypeError("Instance is in service already");
    this.#lanes.set(instance, this.#create(instance));
  }

  /**
   * Gives an instance no new sequences; settles when those it has are over and it runs nothing any more.
   * @throws RangeError for the last instance.
   */
  remove(instance: ModelInstance): Promise<void> {
    const lane = this.#lanes.get(instance);
    if (lane === undefined) throw new TypeError("Instance is not in service");
    if (this.#lanes.size === 1) {
      throw new RangeError("The last instance of a model cannot be removed");
    }
    this.#lanes.delete(instance);
    return new Promise((onLeft) => {
      this.#leaving.set(lane, { instance, onLeft });
      this.released(lane);
    });
  }

  /** Whether any sequence has a slot of an instance in service. */
  hasSequences(instance: ModelInstance): boolean {
    const lane = this.#lanes.get(instance);
    return lane !== undefined && lane.slots.owners.length > 0;
  }

  /** A slot of the lane became free: was it the last thing that held a leaving instance? */
  released(lane: SequenceLane): void {
    const leaving = this.#leaving.get(lane);
    if (leaving === undefined || lane.slots.owners.length > 0) return;
    this.#leaving.delete(lane);
    lane.cancelTimer();
    leaving.onLeft(lane.leave(leaving.instance));
  }
}
