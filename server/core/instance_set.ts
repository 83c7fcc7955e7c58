import type { InstancePlacement, ModelInstance } from "../../backends/backend.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { ConfigPositions } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import type { Clock } from "./clock.ts";
import { type PlacedInstance, planInstances } from "./instance_plan.ts";
import type { Log } from "./log.ts";
import type { ModelRates } from "./scheduler/rate_limiter.ts";
import { formatResourceMap } from "./scheduler/resource_map.ts";
import type { InstanceScheduler } from "./scheduler/scheduler.ts";

/** Instances of one version that are created at the same time: slow models start sooner, large ones not all at once. */
const CREATED_AT_ONCE_MAX = 4;
/** So long a change waits for what the instances that it removes run; they may finish it later. */
const REMOVAL_WAIT_MAX_MS = 30_000;

/** What a set of instances works with. */
export interface InstanceSetParts {
  /** Creates an instance that is ready to serve: warmed up. */
  readonly create: (placement: InstancePlacement) => Promise<ModelInstance>;
  /** What the rate limiter knows of them. */
  readonly rates?: ModelRates | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** Further instances that are ready, and what to do with them; disposing it without `commit` frees them. */
export interface InstanceUpdate extends AsyncDisposable {
  readonly addedCount: number;
  readonly removedCount: number;
  /**
   * Takes the new ones into service and those that are not wanted any more out of it, at once. Settles when the latter
   * are freed, but for those that sequences hold, and after 30 s in any case; never rejects.
   */
  commit(): Promise<void>;
}

/** The instances of a loaded version: those that serve and those that finish what they have. */
export class InstanceSet implements AsyncDisposable {
  readonly #parts: InstanceSetParts;
  /** Serving instances and what they were made for. */
  readonly #serving = new Map<ModelInstance, PlacedInstance>();
  /** Out of service, with work left. */
  readonly #leaving = new Set<ModelInstance>();
  #scheduler: InstanceScheduler | undefined;
  readonly #disposed = Promise.withResolvers<void>();

  constructor(parts: InstanceSetParts) {
    this.#parts = parts;
  }

  /** Instances that serve. */
  get instances(): readonly ModelInstance[] {
    return [...this.#serving.keys()];
  }

  /** Creates the first instances. @throws ServerError; disposing the set then frees those that were created. */
  async fill(planned: readonly PlacedInstance[]): Promise<void> {
    await this.#createAll(planned, this.#serving);
    this.#tellResources();
  }

  /** Says who gives work to the instances. */
  serve(scheduler: InstanceScheduler): void {
    this.#scheduler = scheduler;
  }

  /**
   * Creates what a changed configuration asks for and is not there (scheduling.md §10).
   * @throws ServerError; nothing has changed then.
   */
  async prepare(config: ModelConfig, positions?: ConfigPositions): Promise<InstanceUpdate> {
    const { rates } = this.#parts;
    const { missing, surplus } = this.#compare(planInstances(config));
    rates?.limiter.check(config, missing, positions);
    rates?.plan(config, missing);
    const created = new Map<ModelInstance, PlacedInstance>();
    try {
      await this.#createAll(missing, created);
    } catch (reason) {
      await this.#discard(created);
      throw ServerError.from(reason);
    }
    let isCommitted = false;
    return {
      addedCount: created.size,
      removedCount: surplus.length,
      commit: () => {
        isCommitted = true;
        for (const [instance, plan] of created) {
          this.#serving.set(instance, plan);
          this.#scheduler!.addInstance(instance);
        }
        this.#tellResources();
        const held = surplus.filter((instance) => this.#scheduler!.holdsSequences?.(instance));
        const removed = surplus.map((instance) => ({ instance, gone: this.#remove(instance) }));
        return this.#awaitRemoval(removed.filter(({ instance }) => !held.includes(instance)));
      },
      [Symbol.asyncDispose]: async () => {
        if (!isCommitted) await this.#discard(created);
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await using disposables = new AsyncDisposableStack();
    for (const instance of [...this.#serving.keys(), ...this.#leaving]) disposables.use(instance);
    this.#serving.clear();
    this.#leaving.clear();
    this.#disposed.resolve();
  }

  /** Whoever changes the instances learns when the old ones have ended, unless one of them hangs. */
  async #awaitRemoval(
    removed: readonly { readonly instance: ModelInstance; readonly gone: Promise<void> }[],
  ): Promise<void> {
    if (removed.length === 0) return;
    const { clock, log } = this.#parts;
    const { promise: isLate, resolve } = Promise.withResolvers<void>();
    const timer = clock.setTimer(REMOVAL_WAIT_MAX_MS, () => {
      for (const { instance } of removed) {
        if (!this.#leaving.has(instance)) continue;
        const { name } = instance.placement;
        log.warning(`instance ${name} is out of service, and still runs what it had begun`);
      }
      resolve();
    });
    await Promise.race([
      Promise.all(removed.map(({ gone }) => gone)),
      this.#disposed.promise,
      isLate,
    ]);
    timer.cancel();
  }

  /**
   * Creates instances side by side, and notes those that came to be in the order of their plans.
   * @throws what the first failed one in that order threw, when none is being created any more.
   */
  async #createAll(
    plans: readonly PlacedInstance[],
    created: Map<ModelInstance, PlacedInstance>,
  ): Promise<void> {
    const results: PromiseSettledResult<ModelInstance>[] = [];
    let next = 0;
    let isFailed = false;
    const createSome = async () => {
      while (next < plans.length && !isFailed) {
        const index = next++;
        const [result] = await Promise.allSettled([this.#create(plans[index]!)]);
        results[index] = result;
        if (result.status === "rejected") isFailed = true;
      }
    };
    await Promise.all(Array.from({ length: CREATED_AT_ONCE_MAX }, createSome));
    for (const [index, result] of results.entries()) {
      if (result.status === "rejected") continue;
      created.set(result.value, plans[index]!);
      this.#parts.rates?.add(result.value, plans[index]!);
    }
    const failed = results.find(({ status }) => status === "rejected");
    if (failed?.status === "rejected") throw failed.reason;
  }

  async #create({ placement }: PlacedInstance): Promise<ModelInstance> {
    return await this.#parts.create(placement);
  }

  /** Which instances can stay, which are to be made, and which nobody asks for. */
  #compare(planned: readonly PlacedInstance[]) {
    const spare = new Map<string, ModelInstance[]>();
    for (const [instance, { signature }] of this.#serving) {
      spare.set(signature, [...spare.get(signature) ?? [], instance]);
    }
    const missing = planned.filter(({ signature }) => spare.get(signature)?.shift() === undefined);
    return { missing, surplus: [...spare.values()].flat() };
  }

  async #discard(created: ReadonlyMap<ModelInstance, PlacedInstance>): Promise<void> {
    const { rates } = this.#parts;
    rates?.cancelPlans();
    for (const instance of created.keys()) {
      rates?.remove(instance);
      await this.#dispose(instance);
    }
  }

  async #remove(instance: ModelInstance): Promise<void> {
    this.#serving.delete(instance);
    this.#leaving.add(instance);
    try {
      await this.#scheduler!.removeInstance(instance);
    } catch (reason) {
      const { message } = ServerError.from(reason);
      this.#parts.log.error(`failed to remove instance ${instance.placement.name}: ${message}`);
      return;
    }
    // The whole set may have been disposed meanwhile.
    if (this.#leaving.delete(instance)) await this.#dispose(instance);
    this.#tellResources();
  }

  /** Instances decide how much there is of the resources that no flag limits. */
  #tellResources(): void {
    const { log, rates } = this.#parts;
    if (rates === undefined || log.isVerbose?.(1) !== true) return;
    log.verbose(1, formatResourceMap(rates.limiter));
  }

  async #dispose(instance: ModelInstance): Promise<void> {
    try {
      await instance[Symbol.asyncDispose]();
    } catch (reason) {
      const { message } = ServerError.from(reason);
      this.#parts.log.error(`failed to free instance ${instance.placement.name}: ${message}`);
    }
  }
}
