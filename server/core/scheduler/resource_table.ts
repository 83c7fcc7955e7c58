/** `--rate-limit-resource`: how much there is of a resource; without device on each device, and globally. */
export interface RateLimitResource {
  readonly name: string;
  readonly count: number;
  readonly deviceId?: number;
}

/** How much of one resource an instance needs while it runs; without device of the one that all devices share. */
export interface ResourceDemand {
  readonly name: string;
  readonly count: number;
  readonly deviceId?: number;
}

/** One resource of one device, or one that all devices share. */
export interface Resource {
  readonly name: string;
  /** Undefined = global. */
  readonly deviceId: number | undefined;
  /** What there is; never below the demand of a registered instance. */
  capacity: number;
  /** What running instances hold. */
  used: number;
  /** Scaled priority of the latest instance that got it: whoever was away does not catch up on what it missed. */
  latestPriority: number;
  /** Number of the last search in which an instance that waits laid claim to it; kept by the rate limiter. */
  claimedAt: number;
}

/** A demand with the resource it is for. */
export interface ResourceNeed {
  readonly resource: Resource;
  readonly count: number;
}

interface Entry {
  readonly resource: Resource;
  /** Demands of registered instances, with the model they belong to. */
  readonly demands: Map<ResourceNeed, string>;
}

/**
 * The resources that loaded instances ask for and their capacities (scheduling.md §6). A capacity is what the command
 * line says, or else the largest demand of one instance, recomputed with every registration.
 */
export class ResourceTable {
  readonly #entries = new Map<string, Entry>();
  readonly #limits: readonly RateLimitResource[];

  constructor(limits: readonly RateLimitResource[]) {
    this.#limits = smallestOfEach(limits);
  }

  /** What an explicit capacity would allow; Infinity when capacities follow the demands. */
  limitOf({ name, deviceId }: Pick<ResourceDemand, "name" | "deviceId">): number {
    if (this.#limits.length === 0) return Infinity;
    const counts = this.#limits
      .filter((limit) =>
        limit.name === name &&
        (deviceId === undefined || limit.deviceId === undefined || limit.deviceId === deviceId)
      )
      .map(({ count }) => count);
    return Math.max(0, ...counts);
  }

  /** True when an instance of another model uses the name in the other sense, global or per device. */
  isUsedOtherwise({ name, deviceId }: ResourceDemand, model: string): boolean {
    for (const { resource, demands } of this.#entries.values()) {
      if (resource.name !== name) continue;
      if ((resource.deviceId === undefined) === (deviceId === undefined)) continue;
      for (const owner of demands.values()) if (owner !== model) return true;
    }
    return false;
  }

  /** Registers what an instance needs; a demand of nothing is none. */
  register(demands: readonly ResourceDemand[], model: string): ResourceNeed[] {
    return demands.filter(({ count }) => count > 0).map((demand) => {
      const entry = this.#entryOf(demand);
      const need = { resource: entry.resource, count: demand.count };
      entry.demands.set(need, model);
      this.#updateCapacity(entry);
      return need;
    });
  }

  /** Forgets what an instance needed; it must not hold it any more. */
  unregister(needs: readonly ResourceNeed[]): void {
    for (const need of needs) {
      const { resource } = need;
      const entry = this.#entries.get(keyOf(resource));
      if (entry === undefined || !entry.demands.delete(need)) continue;
      if (entry.demands.size === 0) this.#entries.delete(keyOf(resource));
      else this.#updateCapacity(entry);
    }
  }

  /** Every resource that a registered instance needs. */
  resources(): Resource[] {
    return [...this.#entries.values()].map(({ resource }) => resource);
  }

  #entryOf({ name, deviceId }: ResourceDemand): Entry {
    const key = keyOf({ name, deviceId });
    let entry = this.#entries.get(key);
    if (entry === undefined) {
      const resource = { name, deviceId, capacity: 0, used: 0, latestPriority: 0, claimedAt: 0 };
      this.#entries.set(key, entry = { resource, demands: new Map() });
    }
    return entry;
  }

  #updateCapacity({ resource, demands }: Entry): void {
    const limit = this.limitOf(
      resource.deviceId === undefined
        ? { name: resource.name }
        : { name: resource.name, deviceId: resource.deviceId },
    );
    let largest = 0;
    for (const { count } of demands.keys()) largest = Math.max(largest, count);
    resource.capacity = limit === Infinity ? largest : limit;
  }
}

function keyOf({ name, deviceId }: { name: string; deviceId: number | undefined }): string {
  return `${deviceId ?? "global"}:${name}`;
}

/** Of the same resource given twice, the smaller count holds. */
function smallestOfEach(limits: readonly RateLimitResource[]): RateLimitResource[] {
  const smallest = new Map<string, RateLimitResource>();
  for (const limit of limits) {
    const key = `${limit.deviceId ?? ""}:${limit.name}`;
    const known = smallest.get(key);
    if (known === undefined || limit.count < known.count) smallest.set(key, limit);
  }
  return [...smallest.values()];
}
