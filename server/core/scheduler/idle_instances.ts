import type { ModelInstance } from "../../../backends/backend.ts";
import {
  compareTurns,
  type ModelRates,
  type RatedInstance,
  type ResourceWaiter,
} from "./rate_limiter.ts";

/** The instances of a pool that run nothing. */
export interface IdleInstances {
  /** How many of them may run a batch now. */
  readonly count: number;
  /** How many must wait for resources. */
  readonly heldBackCount: number;
  /** Takes one out to run. */
  take(): ModelInstance | undefined;
  /** Brings one back that has run. */
  giveBack(instance: ModelInstance): void;
  /** One that has run does not come back. */
  dismiss(instance: ModelInstance): void;
  /** Puts in a new one. */
  add(instance: ModelInstance): void;
  /** Takes a certain one out for good; false when it is not here. */
  remove(instance: ModelInstance): boolean;
  /** Says whether there is work that could run if only `count` were not 0. */
  setDemand(hasWork: boolean): void;
}

/** Without rate limiter: whoever is idle may run. */
export class FreeInstances implements IdleInstances {
  readonly #idle: ModelInstance[];

  constructor(instances: readonly ModelInstance[]) {
    this.#idle = [...instances].reverse();
  }

  get count(): number {
    return this.#idle.length;
  }

  get heldBackCount(): number {
    return 0;
  }

  take(): ModelInstance | undefined {
    return this.#idle.pop();
  }

  giveBack(instance: ModelInstance): void {
    this.#idle.push(instance);
  }

  dismiss(): void {}

  add(instance: ModelInstance): void {
    this.#idle.push(instance);
  }

  remove(instance: ModelInstance): boolean {
    const index = this.#idle.indexOf(instance);
    if (index >= 0) this.#idle.splice(index, 1);
    return index >= 0;
  }

  setDemand(): void {}
}

/**
 * With rate limiter: an instance that needs resources may run only when the limiter offers it; among those that may,
 * the one with the smallest scaled priority is taken.
 */
export class RatedInstances implements IdleInstances, ResourceWaiter {
  readonly #rates: ModelRates;
  readonly #onOffer: () => void;
  /** Idle instances that need nothing. */
  readonly #free = new Map<RatedInstance, ModelInstance>();
  /** Idle instances that need resources. */
  readonly #bound = new Map<RatedInstance, ModelInstance>();
  /** The one that holds its resources and may run. */
  #offered: RatedInstance | undefined;

  /** `onOffer` is called when an instance may run; it then runs at once or not at all. */
  constructor(instances: readonly ModelInstance[], rates: ModelRates, onOffer: () => void) {
    this.#rates = rates;
    this.#onOffer = onOffer;
    for (const instance of instances) this.add(instance);
  }

  get count(): number {
    return this.#free.size + (this.#offered === undefined ? 0 : 1);
  }

  get heldBackCount(): number {
    return this.#offered === undefined ? this.#bound.size : this.#bound.size - 1;
  }

  get candidates(): readonly RatedInstance[] {
    return [...this.#bound.keys()];
  }

  accept(rated: RatedInstance): boolean {
    this.#offered = rated;
    this.#onOffer();
    const isTaken = this.#offered === undefined;
    this.#offered = undefined;
    return isTaken;
  }

  take(): ModelInstance | undefined {
    let best = this.#offered;
    for (const rated of this.#free.keys()) {
      if (best === undefined || compareTurns(rated, best) < 0) best = rated;
    }
    if (best === undefined) return undefined;
    const instance = this.#free.get(best) ?? this.#bound.get(best);
    this.#free.delete(best);
    this.#bound.delete(best);
    if (best === this.#offered) this.#offered = undefined;
    return instance;
  }

  giveBack(instance: ModelInstance): void {
    const rated = this.#rates.of(instance);
    rated.scaledPriority += rated.priority;
    this.#put(rated, instance);
    this.#rates.limiter.release(rated);
  }

  dismiss(instance: ModelInstance): void {
    this.#rates.limiter.release(this.#rates.of(instance));
  }

  add(instance: ModelInstance): void {
    this.#put(this.#rates.of(instance), instance);
  }

  remove(instance: ModelInstance): boolean {
    const rated = this.#rates.of(instance);
    return this.#free.delete(rated) || this.#bound.delete(rated);
  }

  setDemand(hasWork: boolean): void {
    const isWaiting = hasWork && this.count === 0 && this.#bound.size > 0;
    this.#rates.limiter.setWaiting(this, isWaiting);
  }

  #put(rated: RatedInstance, instance: ModelInstance): void {
    (rated.needs.length === 0 ? this.#free : this.#bound).set(rated, instance);
  }
}
