import { ServerError } from "../../proto/status.ts";
import type { Clock } from "./clock.ts";
import { LoadSlots } from "./load_slots.ts";
import type { Log } from "./log.ts";
import type { Model } from "./model.ts";
import type { ModelEntry, ModelRegistry } from "./model_registry.ts";
import {
  DUPLICATE_MODEL_REASON,
  type ModelRepository,
  type RepositoryModel,
} from "./model_repository.ts";

/** What loading and unloading works with. */
export interface ModelLifecycleParts {
  readonly registry: ModelRegistry;
  readonly repository: ModelRepository;
  readonly loadVersion: (model: RepositoryModel, version: number) => Promise<Model>;
  readonly clock: Clock;
  readonly log: Log;
  /** Versions loaded at the same time. */
  readonly threadCount: number;
  /** Further attempts per version. */
  readonly retryCount: number;
}

/** A directory that is a model, but of which the version policy leaves nothing: told like a version that failed. */
const NO_VERSION = "at least one version must be available";

/** How to load. */
export interface LoadOptions {
  readonly override?: string | undefined;
  readonly isStart?: boolean;
}

interface VersionResult {
  readonly version: number;
  readonly model: Model | undefined;
  readonly reason: string;
  readonly loadMs: number;
}

/**
 * Loads and unloads models. Operations on one model happen one after the other in the order they were asked for;
 * those on different models side by side.
 */
export class ModelLifecycle {
  readonly #parts: ModelLifecycleParts;
  readonly #slots: LoadSlots;
  /** The end of the last operation asked for, by model. */
  readonly #chains = new Map<string, Promise<void>>();
  /** Versions that were replaced or unloaded and still finish requests. */
  readonly #retiring = new Set<Promise<void>>();

  constructor(parts: ModelLifecycleParts) {
    this.#parts = parts;
    this.#slots = new LoadSlots(parts.threadCount);
  }

  /**
   * Loads a model, or loads it anew; what served before goes on until all new versions are ready. With `override`
   * (JSON) instead of the configuration file. At the start, a directory that cannot be read is remembered as a model
   * that should serve.
   * @throws ServerError that says why the directory could not be read, or why which version could not be loaded.
   */
  load(name: string, options: LoadOptions = {}): Promise<void> {
    return this.#inOrder(name, () => this.#load(name, options));
  }

  /** Unloads a model; settles when it serves no more, while requests in flight may still be running. */
  unload(name: string): Promise<void> {
    const { promise: started, resolve } = Promise.withResolvers<void>();
    const ended = this.#inOrder(name, async () => {
      const retired = this.#retireAll(name);
      resolve();
      await retired;
    });
    return Promise.race([started, ended]);
  }

  /** Unloads every model and waits until nothing is left. */
  async unloadAll(): Promise<void> {
    const names = new Set([
      ...this.#parts.registry.entries().map(({ name }) => name),
      ...this.#chains.keys(),
    ]);
    await Promise.all([...names].map((name) => this.#inOrder(name, () => this.#retireAll(name))));
    await Promise.all(this.#retiring);
  }

  async #inOrder<Value>(name: string, operation: () => Promise<Value>): Promise<Value> {
    const before = this.#chains.get(name) ?? Promise.resolve();
    const result = before.then(operation);
    const end = result.then(() => {}, () => {});
    this.#chains.set(name, end);
    try {
      return await result;
    } finally {
      if (this.#chains.get(name) === end) this.#chains.delete(name);
    }
  }

  async #load(name: string, options: LoadOptions): Promise<void> {
    const source = await this.#read(name, options);
    const entry = this.#parts.registry.getOrCreate(name);
    if (isUnchanged(entry, source)) return;
    entry.stamp = undefined;
    for (const version of source.versions) {
      if (entry.version(version)?.state === "READY") continue;
      entry.set(version, { state: "LOADING", reason: "" });
    }
    const startMs = this.#parts.clock.now();
    const results = await Promise.all(
      source.versions.map((version) => this.#slots.run(() => this.#loadOne(source, version))),
    );
    const failed = results.filter(({ model }) => model === undefined);
    if (failed.length > 0) {
      await this.#giveUp(entry, results);
      throw loadError(name, failed);
    }
    this.#serve(entry, results);
    entry.stamp = source.stamp;
    const versions = source.versions.join(", ");
    const durationMs = Math.round(this.#parts.clock.now() - startMs);
    this.#parts.log.info(
      `successfully loaded '${name}' in ${durationMs} ms (version ${versions})`,
    );
  }

  async #read(name: string, { override, isStart }: LoadOptions): Promise<RepositoryModel> {
    const { registry, repository, log } = this.#parts;
    try {
      const source = await this.#slots.run(() => repository.read(name, override));
      registry.setReadFailure(name, undefined);
      return source;
    } catch (error) {
      const failure = ServerError.from(error);
      const isDuplicate = failure.message === DUPLICATE_MODEL_REASON;
      log.error(`Poll failed for model directory '${name}': ${failure.message}`);
      // A name without any directory is nobody's model, and what a request asks for is the client's matter.
      if (isStart === true && failure.code !== "NOT_FOUND") {
        registry.setReadFailure(name, {
          reason: isDuplicate ? failure.message : failure.toReason(),
          isDuplicate,
        });
      }
      throw readError(name, failure);
    }
  }

  async #loadOne(source: RepositoryModel, version: number): Promise<VersionResult> {
    const { clock, log, retryCount } = this.#parts;
    const startMs = clock.now();
    log.info(`loading: ${source.name}:${version}`);
    for (let attempt = 0;; attempt++) {
      try {
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

  /** All versions are ready: they serve from now on, and only they. */
  #serve(entry: ModelEntry, results: readonly VersionResult[]): void {
    const chosen = new Set(results.map(({ version }) => version));
    for (const { version, model, loadMs } of results) {
      const before = entry.version(version);
      // In any other state than READY, what is still loaded is being retired already.
      const replaced = before?.state === "READY" ? before.model : undefined;
      entry.set(version, { state: "READY", reason: "", model, loadMs });
      if (replaced !== undefined) this.#drain(replaced, () => {});
    }
    for (const { version, state } of entry.versions()) {
      if (chosen.has(version)) continue;
      if (state === "READY") this.#retire(entry, version);
    }
  }

  /** Some version failed: no new one serves, those that served before go on. */
  async #giveUp(entry: ModelEntry, results: readonly VersionResult[]): Promise<void> {
    this.#parts.log.error(`failed to load '${entry.name}'`);
    for (const { version, model, reason, loadMs } of results) {
      if (entry.version(version)?.state !== "READY") {
        entry.set(version, {
          state: "UNAVAILABLE",
          reason: model === undefined ? reason : "unloaded",
          loadMs,
        });
      }
      if (model !== undefined) await this.#dispose(model);
    }
  }

  async #retireAll(name: string): Promise<void> {
    const { registry } = this.#parts;
    registry.setReadFailure(name, undefined);
    const entry = registry.get(name);
    if (entry === undefined) return;
    const retired: Promise<void>[] = [];
    for (const { version, state } of entry.versions()) {
      if (state === "READY") retired.push(this.#retire(entry, version));
      else if (state === "UNAVAILABLE") entry.set(version, { reason: "unloaded" });
    }
    await Promise.all(retired);
  }

  /** Takes a READY version out of service. */
  #retire(entry: ModelEntry, version: number): Promise<void> {
    const { model } = entry.version(version)!;
    entry.set(version, { state: "UNLOADING" });
    return this.#drain(model!, () => {
      this.#parts.log.info(`successfully unloaded '${entry.name}' version ${version}`);
      const now = entry.version(version)!;
      // While its last requests ran, the version may have been loaded anew.
      if (now.model !== model) return;
      entry.set(version, {
        model: undefined,
        ...(now.state === "UNLOADING" ? { state: "UNAVAILABLE", reason: "unloaded" } : {}),
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

/** True when exactly these versions serve, loaded from what the directory still holds (management.md §5). */
function isUnchanged(entry: ModelEntry, source: RepositoryModel): boolean {
  if (source.stamp === undefined || source.stamp !== entry.stamp) return false;
  const ready = entry.ready().map(({ version }) => version);
  return ready.join() === source.versions.join();
}

/** The error of a load request whose directory could not be read (http.md §5.2), with what is wrong. */
function readError(name: string, { message, cause }: ServerError): ServerError {
  if (message.startsWith(NO_VERSION)) {
    return new ServerError("INVALID_ARG", `load failed for model '${name}': ${message}\n`, {
      cause,
    });
  }
  const start = `failed to load '${name}', failed to poll from model repository`;
  return new ServerError("INTERNAL", message.startsWith(start) ? message : `${start}: ${message}`, {
    cause,
  });
}

/** The error of a load request whose versions could not all be loaded (management.md §5). */
function loadError(name: string, failed: readonly VersionResult[]): ServerError {
  const reasons = failed.map(({ version, reason }) =>
    `version ${version} is at UNAVAILABLE state: ${reason};`
  );
  return new ServerError("INVALID_ARG", `load failed for model '${name}': ${reasons.join("")}\n`);
}
