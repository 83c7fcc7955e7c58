import { ServerError } from "../../proto/status.ts";
import type { Clock } from "./clock.ts";
import type { InstanceUpdate } from "./instance_set.ts";
import { mayStay } from "./instance_update.ts";
import type { LoadSlots } from "./load_slots.ts";
import type { Log } from "./log.ts";
import type { Model } from "./model.ts";
import type { ModelEntry, ModelRegistry } from "./model_registry.ts";
import type { RepositoryModel } from "./model_repository.ts";

/** What loading and retiring versions works with. */
export interface VersionLifecycleParts {
  readonly registry: ModelRegistry;
  readonly loadVersion: (model: RepositoryModel, version: number) => Promise<Model>;
  /** Prepares other instances for a version that stays (`prepareUpdate`); absent = every load loads anew. */
  readonly prepareUpdate?:
    | ((model: Model, source: RepositoryModel) => Promise<InstanceUpdate>)
    | undefined;
  readonly clock: Clock;
  readonly log: Log;
  /** Versions loaded at the same time. */
  readonly slots: LoadSlots;
  /** Further attempts per version. */
  readonly retryCount: number;
}

/** Reason of a version that was unloaded by request (management.md §3). */
const UNLOADED = "unloaded";

interface VersionResult {
  readonly version: number;
  /** Undefined when it failed. */
  readonly model: Model | undefined;
  /** Set for a version that stays. */
  readonly update?: InstanceUpdate;
  readonly reason: string;
  readonly loadMs: number;
}

/** What a load has led to. */
export interface LoadOutcome {
  /** False when all that serves served before. */
  readonly isNew: boolean;
  /** Settles when the instances that were removed from versions that stay have ended (`InstanceUpdate.commit`). */
  readonly removed: Promise<unknown>;
}

/** Brings the versions of one model into service and out of it; the caller sees to it that nobody else does meanwhile. */
export class VersionLifecycle {
  readonly #parts: VersionLifecycleParts;
  /** Versions that were replaced or unloaded and still finish requests. */
  readonly #retiring = new Set<Promise<void>>();

  constructor(parts: VersionLifecycleParts) {
    this.#parts = parts;
  }

  /**
   * Loads all versions of a model; what served before goes on until all new ones are ready. Versions of which only the
   * instances change stay (management.md §7).
   * @throws ServerError that says why which version could not be loaded.
   */
  async load(source: RepositoryModel): Promise<LoadOutcome> {
    const { name } = source;
    const entry = this.#parts.registry.getOrCreate(name);
    entry.stamp = undefined;
    for (const version of source.versions) {
      if (entry.version(version)?.state === "READY") continue;
      entry.set(version, { state: "LOADING", reason: "" });
    }
    const startMs = this.#parts.clock.now();
    const results = await Promise.all(
      source.versions.map((version) => this.#parts.slots.run(() => this.#loadOne(source, version))),
    );
    if (results.some(({ model }) => model === undefined)) {
      await this.#giveUp(entry, results);
      throw loadError(name, results.filter(({ model }) => model === undefined));
    }
    const outcome = this.#serve(entry, results, source);
    entry.stamp = source.stamp;
    entry.labels = source.versionLabels;
    const versions = source.versions.join(", ");
    const durationMs = Math.round(this.#parts.clock.now() - startMs);
    this.#parts.log.info(
      `successfully loaded '${name}' in ${durationMs} ms (version ${versions})`,
    );
    return outcome;
  }

  /** Takes every version of a model out of service, at once; settles when all have finished their requests. */
  async retireAll(name: string, reason = UNLOADED): Promise<void> {
    const entry = this.#parts.registry.get(name);
    if (entry === undefined) return;
    const retired: Promise<void>[] = [];
    for (const { version, state } of entry.versions()) {
      if (state === "READY") retired.push(this.#retire(entry, version, reason));
      else if (state === "UNAVAILABLE") entry.set(version, { reason });
    }
    await Promise.all(retired);
  }

  /** Settles when no version that was replaced or retired is left. */
  async retired(): Promise<void> {
    await Promise.all(this.#retiring);
  }

  async #loadOne(source: RepositoryModel, version: number): Promise<VersionResult> {
    const { clock, log, retryCount } = this.#parts;
    const startMs = clock.now();
    const staying = this.#findStaying(source, version);
    if (staying === undefined) log.info(`loading: ${source.name}:${version}`);
    for (let attempt = 0;; attempt++) {
      try {
        if (staying !== undefined) return await this.#prepare(source, version, staying);
        const model = await this.#parts.loadVersion(source, version);
        const loadMs = clock.now() - startMs;
        model.statistics.loaded(loadMs);
        return { version, model, reason: "", loadMs };
      } catch (error) {
        const reason = ServerError.from(error).toReason();
        log.error(`failed to load '${source.name}' version ${version}: ${reason}`);
        if (attempt >= retryCount) {
          return { version, model: undefined, reason, loadMs: clock.now() - startMs };
        }
      }
    }
  }

  /** The loaded version, when it need not be loaded anew. */
  #findStaying(
    source: RepositoryModel,
    version: number,
  ): { readonly model: Model; readonly loadMs: number } | undefined {
    if (this.#parts.prepareUpdate === undefined) return undefined;
    const known = this.#parts.registry.get(source.name)?.version(version);
    if (known?.state !== "READY") return undefined;
    const { model, source: before, loadMs } = known;
    if (model === undefined || before === undefined) return undefined;
    return mayStay({ model, source: before }, source) ? { model, loadMs } : undefined;
  }

  async #prepare(
    source: RepositoryModel,
    version: number,
    { model, loadMs }: { readonly model: Model; readonly loadMs: number },
  ): Promise<VersionResult> {
    const update = await this.#parts.prepareUpdate!(model, source);
    const { addedCount, removedCount } = update;
    this.#parts.log.info(
      `updating: ${source.name}:${version} (instances added: ${addedCount}, removed: ${removedCount})`,
    );
    return { version, model, update, reason: "", loadMs };
  }

  /** All versions are ready: they serve from now on, and only they. */
  #serve(
    entry: ModelEntry,
    results: readonly VersionResult[],
    source: RepositoryModel,
  ): LoadOutcome {
    const chosen = new Set(results.map(({ version }) => version));
    let isNew = false;
    const removed: Promise<void>[] = [];
    for (const { version, model, loadMs, update } of results) {
      if (update !== undefined) {
        removed.push(update.commit());
        entry.set(version, { source });
        continue;
      }
      isNew = true;
      const before = entry.version(version);
      // In any other state than READY, what is still loaded is being retired already.
      const replaced = before?.state === "READY" ? before.model : undefined;
      entry.set(version, { state: "READY", reason: "", model, source, loadMs });
      if (replaced !== undefined) {
        this.#drain(replaced, () => this.#logUnloaded(entry.name, version));
      }
    }
    for (const { version, state } of entry.versions()) {
      if (chosen.has(version) || state !== "READY") continue;
      isNew = true;
      this.#retire(entry, version);
    }
    return { isNew, removed: Promise.all(removed) };
  }

  /** Some version failed: no new one serves, those that served before go on. */
  async #giveUp(entry: ModelEntry, results: readonly VersionResult[]): Promise<void> {
    this.#parts.log.error(`failed to load '${entry.name}'`);
    for (const { version, model, update, reason, loadMs } of results) {
      if (entry.version(version)?.state !== "READY") {
        entry.set(version, {
          state: "UNAVAILABLE",
          reason: model === undefined ? reason : UNLOADED,
          loadMs,
        });
      }
      if (update !== undefined) await update[Symbol.asyncDispose]();
      else if (model !== undefined) await this.#dispose(model);
    }
  }

  #logUnloaded(name: string, version: number): void {
    this.#parts.log.info(`successfully unloaded '${name}' version ${version}`);
  }

  /** Takes a READY version out of service. */
  #retire(entry: ModelEntry, version: number, reason = UNLOADED): Promise<void> {
    const { model } = entry.version(version)!;
    entry.set(version, { state: "UNLOADING" });
    return this.#drain(model!, () => {
      this.#logUnloaded(entry.name, version);
      const now = entry.version(version)!;
      // While its last requests ran, the version may have been loaded anew.
      if (now.model !== model) return;
      entry.set(version, {
        model: undefined,
        source: undefined,
        ...(now.state === "UNLOADING" ? { state: "UNAVAILABLE", reason } : {}),
      });
    });
  }

  #drain(model: Model, onGone: () => void): Promise<void> {
    const drained = (async () => {
      await model.stop();
      await this.#dispose(model);
      onGone();
    })();
    this.#retiring.add(drained);
    return drained.finally(() => this.#retiring.delete(drained));
  }

  async #dispose(model: Model): Promise<void> {
    try {
      await model[Symbol.asyncDispose]();
    } catch (error) {
      const { message } = ServerError.from(error);
      this.#parts.log.error(
        `failed to free '${model.config.name}' version ${model.version}: ${message}`,
      );
    }
  }
}

/** The error of a load request whose versions could not all be loaded (management.md §5). */
export function loadError(
  name: string,
  failed: readonly { readonly version: number; readonly reason: string }[],
): ServerError {
  const reasons = failed.map(({ version, reason }) =>
    `version ${version} is at UNAVAILABLE state: ${reason};`
  );
  return new ServerError("INVALID_ARG", `load failed for model '${name}': ${reasons.join("")}\n`);
}
