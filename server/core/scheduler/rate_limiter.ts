import type { ModelInstance } from "../../../backends/backend.ts";
import type { ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import {
  configError,
  type ConfigIssue,
  type ConfigPositions,
} from "../../../proto/model_config.ts";
import {
  type RateLimitResource,
  type ResourceDemand,
  type ResourceNeed,
  ResourceTable,
} from "./resource_table.ts";

export type { RateLimitResource } from "./resource_table.ts";

/** Where an instance will run, and which instance group of its model's configuration it belongs to. */
export interface PlannedInstance {
  readonly deviceId: number;
  readonly groupIndex: number;
}

/** An instance as the rate limiter sees it. */
export interface RatedInstance {
  /** What it holds while it runs; empty = it never waits for anybody. */
  readonly needs: readonly ResourceNeed[];
  /** From 1; an instance of priority 2 gets half as many turns as one of priority 1. */
  readonly priority: number;
  /** Executions so far × priority. */
  scaledPriority: number;
}

/** Somebody whose instances wait for resources: the idle instances of a pool. */
export interface ResourceWaiter {
  /** Those that could run if they had their resources, with the number of the wait they are in. */
  readonly candidates: readonly RatedInstance[];
  /** Lets the instance run: it holds its resources now. False when there was nothing to run after all. */
  accept(rated: RatedInstance): boolean;
}

/**
 * Shares resources among the instances of all models (scheduling.md §6, `--rate-limit=execution_count`). An instance
 * runs only while it holds all it needs. Those that wait are looked at by scaled priority, smallest first; one that
 * cannot have all it needs lays claim to it, so that nobody behind it takes a part: it gets its turn. Who needs
 * nothing of that is not held up (the reference holds up everybody behind the first).
 */
export class RateLimiter {
  readonly #table: ResourceTable;
  /** In the order in which they began to wait. */
  readonly #waiters = new Set<ResourceWaiter>();
  #searchCount = 0;
  #isPlanned = false;
  #isDispatching = false;

  constructor(limits: readonly RateLimitResource[] = []) {
    this.#table = new ResourceTable(limits);
  }

  /** What there is and what is taken, for tests and reports. */
  resources(): { name: string; deviceId: number | undefined; capacity: number; used: number }[] {
    return this.#table.resources();
  }

  /**
   * Registers the instances of a model that is being loaded.
   * @throws ServerError INVALID_ARG with all that is wrong with its resources.
   */
  addModel(
    config: ModelConfig,
    planned: readonly PlannedInstance[],
    positions?: ConfigPositions,
  ): ModelRates {
    this.check(config, planned, positions);
    const rates = new ModelRates(this, this.#table);
    rates.plan(config, planned);
    return rates;
  }

  /** Checks instances that are not registered yet. @throws as `addModel`. */
  check(
    config: ModelConfig,
    planned: readonly PlannedInstance[],
    positions?: ConfigPositions,
  ): void {
    const issues = [...this.#conflicts(config, planned), ...this.#shortages(config, planned)];
    if (issues.length > 0) throw configError(issues, positions);
  }

  /** The waiter has work and no instance to run it on, or no longer. */
  setWaiting(waiter: ResourceWaiter, isWaiting: boolean): void {
    if (!isWaiting) {
      // Others may have waited behind its claim only.
      if (this.#waiters.delete(waiter)) this.plan();
      return;
    }
    if (!this.#waiters.has(waiter)) {
      this.#waiters.add(waiter);
      for (const rated of waiter.candidates) catchUp(rated);
    }
    this.plan();
  }

  /** An instance has run: what it held is free again. */
  release({ needs }: RatedInstance): void {
    if (needs.length === 0) return;
    for (const { resource, count } of needs) resource.used -= count;
    this.plan();
  }

  /** Looks soon, when everybody has said what it waits for, who may run. */
  plan(): void {
    if (this.#isPlanned || this.#waiters.size === 0) return;
    this.#isPlanned = true;
    queueMicrotask(this.#planned);
  }

  readonly #planned = (): void => {
    if (this.#isPlanned) this.dispatch();
  };

  /** Hands resources to those whose turn it is, until nobody can have what it needs. */
  dispatch(): void {
    this.#isPlanned = false;
    if (this.#isDispatching) return this.plan();
    this.#isDispatching = true;
    try {
      for (let next = this.#next(); next !== undefined; next = this.#next()) {
        this.#grant(next.waiter, next.rated);
      }
    } finally {
      this.#isDispatching = false;
    }
  }

  #grant(waiter: ResourceWaiter, rated: RatedInstance): void {
    // It says anew what it waits for while it takes the instance.
    this.#waiters.delete(waiter);
    for (const { resource, count } of rated.needs) resource.used += count;
    const { scaledPriority } = rated;
    if (!waiter.accept(rated)) {
      for (const { resource, count } of rated.needs) resource.used -= count;
      // Who leaves an instance unused waits for none: it would be offered without end.
      this.#waiters.delete(waiter);
      return;
    }
    for (const { resource } of rated.needs) {
      resource.latestPriority = Math.max(resource.latestPriority, scaledPriority);
    }
  }

  /** The first in order of scaled priority that can have all it needs without taking from one before it. */
  #next(): { waiter: ResourceWaiter; rated: RatedInstance } | undefined {
    const candidates: { waiter: ResourceWaiter; rated: RatedInstance }[] = [];
    for (const waiter of this.#waiters) {
      for (const rated of waiter.candidates) candidates.push({ waiter, rated });
    }
    // The sort is stable: among equals the one that has waited longest goes first.
    candidates.sort((a, b) => compareTurns(a.rated, b.rated));
    const search = ++this.#searchCount;
    return candidates.find(({ rated: { needs } }) => {
      const isFree = needs.every(({ resource, count }) =>
        resource.claimedAt !== search && resource.used + count <= resource.capacity
      );
      if (!isFree) { for (const { resource } of needs) resource.claimedAt = search; }
      return isFree;
    });
  }

  #conflicts(config: ModelConfig, planned: readonly PlannedInstance[]): ConfigIssue[] {
    const issues: ConfigIssue[] = [];
    const first = new Map<string, boolean>();
    for (const { demand, path } of allDemands(config, planned)) {
      const isGlobal = demand.deviceId === undefined;
      const before = first.get(demand.name);
      if (before === undefined) first.set(demand.name, isGlobal);
      const isMixed = before !== undefined && before !== isGlobal;
      if (!isMixed && !this.#table.isUsedOtherwise(demand, config.name)) continue;
      const message = `Resource "${demand.name}" is present as both global and device-specific ` +
        `resource in the model configuration.`;
      const hint = isMixed ? {} : { hint: "a model that is loaded uses it in the other sense" };
      if (issues.some((issue) => issue.message === message)) continue;
      issues.push({ path: `${path}.global`, message, ...hint });
    }
    return issues;
  }

  #shortages(config: ModelConfig, planned: readonly PlannedInstance[]): ConfigIssue[] {
    const worst = new Map<string, { issue: ConfigIssue; count: number }>();
    for (const { demand, path } of allDemands(config, planned)) {
      const limit = this.#table.limitOf(demand);
      const key = `${demand.deviceId ?? "global"}:${demand.name}`;
      if (demand.count <= limit || demand.count <= (worst.get(key)?.count ?? 0)) continue;
      const message = `Resource count for "${demand.name}" is limited to ${limit} which will ` +
        `prevent scheduling of one or more model instances, the minimum required count is ` +
        `${demand.count}`;
      const hint = limit === 0
        ? { hint: `say how many there are with --rate-limit-resource=${demand.name}:COUNT` }
        : {};
      worst.set(key, { issue: { path: `${path}.count`, message, ...hint }, count: demand.count });
    }
    return [...worst.values()].map(({ issue }) => issue);
  }
}

/**
 * Negative when the first has its turn before the second: the smaller scaled priority, counting the execution asked for
 * as if it had been (the reference counts the initialisation of the instance), then the better priority.
 */
export function compareTurns(a: RatedInstance, b: RatedInstance): number {
  return a.scaledPriority + a.priority - (b.scaledPriority + b.priority) || a.priority - b.priority;
}

/** The instances of one loaded model as the rate limiter knows them; disposing it takes them all out. */
export class ModelRates implements Disposable {
  readonly limiter: RateLimiter;
  readonly #table: ResourceTable;
  /** Instances to come: what they need is known and counts, so that loads side by side see each other. */
  readonly #planned = new Map<PlannedInstance, RatedInstance>();
  readonly #rated = new Map<ModelInstance, RatedInstance>();

  constructor(limiter: RateLimiter, table: ResourceTable) {
    this.limiter = limiter;
    this.#table = table;
  }

  /** Registers instances to come, of the configuration that the model has now (see `RateLimiter.check`). */
  plan(config: ModelConfig, planned: readonly PlannedInstance[]): void {
    for (const plan of planned) {
      const { groupIndex, deviceId } = plan;
      const demands = demandsOf(config, groupIndex, deviceId).map(({ demand }) => demand);
      this.#planned.set(plan, {
        needs: this.#table.register(demands, config.name),
        priority: Math.max(1, config.instanceGroup[groupIndex]?.rateLimiter?.priority ?? 1),
        scaledPriority: 0,
      });
    }
    // A capacity may have grown.
    this.limiter.plan();
  }

  /** Says which instance was made of a plan. */
  add(instance: ModelInstance, plan: PlannedInstance): void {
    const rated = this.#planned.get(plan);
    if (rated === undefined) throw new TypeError("Instance was not planned");
    this.#planned.delete(plan);
    this.#rated.set(instance, rated);
  }

  /** Forgets the plans of which no instance was made. */
  cancelPlans(): void {
    for (const { needs } of this.#planned.values()) this.#table.unregister(needs);
    this.#planned.clear();
  }

  /** Takes an instance out that does not run any more. */
  remove(instance: ModelInstance): void {
    const rated = this.#rated.get(instance);
    if (rated === undefined) return;
    this.#rated.delete(instance);
    this.#table.unregister(rated.needs);
  }

  of(instance: ModelInstance): RatedInstance {
    const rated = this.#rated.get(instance);
    if (rated === undefined) throw new TypeError("Instance is not known to the rate limiter");
    return rated;
  }

  [Symbol.dispose](): void {
    this.cancelPlans();
    for (const instance of [...this.#rated.keys()]) this.remove(instance);
  }
}

/**
 * Who begins to wait after a time without work, or is new, starts level with those that wait already: otherwise it
 * would have all turns until it had as many executions as they have.
 */
function catchUp(rated: RatedInstance): void {
  if (rated.needs.length === 0) return;
  const level = Math.min(...rated.needs.map(({ resource }) => resource.latestPriority));
  rated.scaledPriority = Math.max(rated.scaledPriority, level);
}

interface PlacedDemand {
  readonly demand: ResourceDemand;
  readonly path: string;
}

/** What an instance of a group needs; a name given twice counts as the last says, as in the reference. */
function demandsOf(config: ModelConfig, groupIndex: number, deviceId: number): PlacedDemand[] {
  const resources = config.instanceGroup[groupIndex]?.rateLimiter?.resources ?? [];
  const demands = new Map<string, PlacedDemand>();
  for (const [index, { name, count, global }] of resources.entries()) {
    const demand = global ? { name, count } : { name, count, deviceId };
    const path = `instance_group[${groupIndex}].rate_limiter.resources[${index}]`;
    demands.set(`${global}:${name}`, { demand, path });
  }
  return [...demands.values()];
}

function allDemands(config: ModelConfig, planned: readonly PlannedInstance[]): PlacedDemand[] {
  const seen = new Set<string>();
  return planned.flatMap(({ groupIndex, deviceId }) => {
    const key = `${groupIndex}:${deviceId}`;
    if (seen.has(key)) return [];
    seen.add(key);
    return demandsOf(config, groupIndex, deviceId);
  });
}
