import type { Sequence } from "./sequence.ts";

/**
 * The slots of one instance. Each has one owner at a time; every change of owner gives it a new generation, so that what
 * an earlier owner left behind is known by its number.
 */
export class SequenceSlots {
  readonly #count: number;
  /** Owners by slot; behind the last occupied slot there is nothing. */
  readonly #owners: (Sequence | undefined)[] = [];
  readonly #generations: number[] = [];
  /** Slots that were used and are free, the lowest last. */
  readonly #free: number[] = [];

  constructor(count: number) {
    this.#count = count;
  }

  /** The free slot with the lowest number; Infinity when all are taken. */
  get lowestFree(): number {
    const free = this.#free.at(-1);
    if (free !== undefined) return free;
    return this.#generations.length < this.#count ? this.#generations.length : Infinity;
  }

  /** Owners in the order of the slots, `undefined` = free; trailing free slots are left out. */
  get owners(): readonly (Sequence | undefined)[] {
    return this.#owners;
  }

  /** Gives the lowest free slot to a sequence. */
  take(sequence: Sequence): void {
    const slot = this.lowestFree;
    if (slot === Infinity) throw new TypeError("No slot is free");
    if (slot === this.#free.at(-1)) this.#free.pop();
    else this.#generations.push(0);
    this.#generations[slot]!++;
    while (this.#owners.length <= slot) this.#owners.push(undefined);
    this.#owners[slot] = sequence;
    sequence.slot = slot;
    sequence.generation = this.#generations[slot]!;
  }

  /** Takes the slot from its owner. @throws TypeError for anybody else. */
  release(sequence: Sequence): void {
    this.check(sequence);
    const { slot } = sequence;
    this.#owners[slot] = undefined;
    while (this.#owners.length > 0 && this.#owners.at(-1) === undefined) this.#owners.pop();
    this.#free.splice(this.#placeOf(slot), 0, slot);
    sequence.slot = -1;
  }

  /** @throws TypeError when the sequence does not own the slot it believes to have. */
  check({ slot, generation }: Sequence): void {
    const owner = this.#owners[slot];
    if (owner?.generation === generation && this.#generations[slot] === generation) return;
    throw new TypeError(`Slot ${slot} has another owner: generation ${generation} is over`);
  }

  /** Where a slot belongs among the free ones. */
  #placeOf(slot: number): number {
    let low = 0;
    let high = this.#free.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#free[middle]! > slot) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
