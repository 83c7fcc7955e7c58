import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { isEnsemble } from "../../proto/model_config_normalize.ts";
import { ServerError } from "../../proto/status.ts";
import { runInTurn } from "./call_turn.ts";
import type { Clock } from "./clock.ts";
import {
  composingModels,
  dependentEnsembles,
  findCircle,
  sortByDependency,
} from "./ensemble/composing_models.ts";
import { LoadSlots } from "./load_slots.ts";
import type { Log } from "./log.ts";
import type { Model } from "./model.ts";
import type { ModelEntry, ModelRegistry } from "./model_registry.ts";
import { type LoadOptions, ModelReader } from "./model_reader.ts";
import type { ModelRepository, RepositoryModel } from "./model_repository.ts";
import { OperationOrder } from "./operation_order.ts";
import { loadError, VersionLifecycle, type VersionLifecycleParts } from "./version_lifecycle.ts";

/** What loading and unloading works with. */
export interface ModelLifecycleParts {
  readonly registry: ModelRegistry;
  readonly repository: ModelRepository;
  readonly loadVersion: (model: RepositoryModel, version: number) => Promise<Model>;
  /** See `VersionLifecycleParts.prepareUpdate`. */
  readonly prepareUpdate?: VersionLifecycleParts["prepareUpdate"];
  /** Checks an ensemble against the models that are loaded now; other models pass. @throws ServerError */
  readonly checkEnsemble: (model: RepositoryModel) => void;
  readonly clock: Clock;
  readonly log: Log;
  /** Versions loaded at the same time. */
  readonly threadCount: number;
  /** Further attempts per version. */
  readonly retryCount: number;
}

/** How a model is unloaded. */
export interface UnloadOptions {
  /** Also the models of an ensemble that were loaded only because of it. */
  readonly unloadDependents?: boolean;
  /** A model asked for it, and may be held up by it. */
  readonly isCall?: boolean | undefined;
}

/** What an operation has to do, and all models that it may change or that must not change meanwhile. */
interface Plan {
  readonly names: ReadonlySet<string>;
  readonly run: () => Promise<void>;
  /** Called when the plan was carried out, failed, or is given up for another one. */
  readonly done?: () => Promise<void>;
}

/** A model to load with all models that it is composed of. */
interface LoadPlan {
  readonly name: string;
  readonly options: LoadOptions;
  /** What was found on disk, by name. */
  readonly sources: Map<string, RepositoryModel>;
  /** Models that were loaded by this operation. */
  readonly loaded: Set<string>;
  /** What settles when instances that it took out of service have ended. */
  readonly removed: Promise<unknown>[];
}

/**
 * Loads and unloads models. Operations that share a model happen one after the other in the order they were asked for,
 * others side by side. An ensemble shares the models it is composed of: they are loaded with it, and when one of them
 * is loaded anew or taken away, the ensemble is bound anew or taken out of service (management.md §5 and §8).
 */
export class ModelLifecycle {
  readonly #parts: ModelLifecycleParts;
  readonly #reader: ModelReader;
  readonly #versions: VersionLifecycle;
  readonly #slots: LoadSlots;
  readonly #order = new OperationOrder();
  #isClosed = false;

  constructor(parts: ModelLifecycleParts) {
    this.#parts = parts;
    const slots = this.#slots = new LoadSlots(parts.threadCount);
    this.#reader = new ModelReader({ ...parts, slots });
    this.#versions = new VersionLifecycle({ ...parts, slots });
  }

  /**
   * Loads a model, or loads it anew; what served before goes on until all new versions are ready. With `override`
   * (JSON) instead of the configuration file. At the start, a directory that cannot be read is remembered as a model
   * that should serve. Requests of clients are answered when instances that were removed have ended: others may change
   * the model meanwhile.
   * @throws ServerError that says why the directory could not be read, or why which version could not be loaded.
   */
  async load(name: string, options: LoadOptions = {}): Promise<void> {
    if (options.isCall) return await this.#loadAsCall(name, options);
    const removed: Promise<unknown>[] = [];
    await this.#loadInTurn(name, { options, removed });
    if (options.isPoll !== true) await Promise.all(removed);
  }

  /** What one load waits for must not wait for a slot that the first one has. */
  async #loadAsCall(name: string, options: LoadOptions): Promise<void> {
    using _slot = this.#slots.lend();
    const { clock } = this.#parts;
    const parts = { options, removed: [] };
    await runInTurn(name, clock, (begin) => this.#loadInTurn(name, parts, begin));
  }

  #loadInTurn(
    name: string,
    { options, removed }: Pick<LoadPlan, "options" | "removed">,
    begin?: () => boolean,
  ): Promise<void> {
    return this.#inOrder(name, async () => {
      const sources = await this.#reader.readAll(name, options);
      const plan = { name, options, sources, loaded: new Set<string>(), removed };
      const done = async () => {
        for (const { hold } of sources.values()) await hold?.settle();
      };
      return { names: this.#withDependents(sources.keys()), run: () => this.#load(plan), done };
    }, begin);
  }

  /**
   * Unloads a model; settles when it serves no more, while requests in flight may still be running. With
   * `unloadDependents` also the models of an ensemble that were loaded only because of it.
   */
  unload(
    name: string,
    { unloadDependents = false, isCall = false }: UnloadOptions = {},
  ): Promise<void> {
    if (!isCall) return this.#unloadInTurn(name, unloadDependents);
    const { clock } = this.#parts;
    return runInTurn(name, clock, (begin) => this.#unloadInTurn(name, unloadDependents, begin));
  }

  #unloadInTurn(name: string, unloadDependents: boolean, begin?: () => boolean): Promise<void> {
    const { promise: started, resolve } = Promise.withResolvers<void>();
    const ended = this.#inOrder(name, () => {
      const names = unloadDependents ? this.#unloadedWith(name) : [name];
      const run = async () => {
        const retired = names.map((each) => this.#retireAll(each));
        await this.#rebind(names);
        resolve();
        await Promise.all(retired);
      };
      return Promise.resolve({ names: this.#withDependents(names), run });
    }, begin);
    return Promise.race([started, ended]);
  }

  /** Ensembles that serve, or should, with a step of one of these models, in whichever repository. */
  ensemblesAround(modelNames: ReadonlySet<string>): string[] {
    const isAround = ({ config: { schedulingChoice } }: RepositoryModel) =>
      schedulingChoice.case === "ensembleScheduling" &&
      schedulingChoice.value.step.some(({ modelName }) => modelNames.has(modelName));
    return this.#ensembles().filter(isAround).map(({ name }) => name);
  }

  /** Unloads every model and waits until nothing is left; what is asked for later is refused. */
  async unloadAll(): Promise<void> {
    this.#isClosed = true;
    const names = new Set([
      ...this.#parts.registry.entries().map(({ name }) => name),
      ...this.#order.names(),
    ]);
    await this.#order.run(names, async () => {
      await Promise.all([...names].map((name) => this.#retireAll(name)));
    });
    await this.#versions.retired();
  }

  /** Runs an operation when it is its turn for all the models it touches; what these are may turn out only then. */
  async #inOrder(
    name: string,
    makePlan: () => Promise<Plan>,
    begin: () => boolean = () => true,
  ): Promise<void> {
    let names: ReadonlySet<string> = this.#related(name);
    for (let isDone = false; !isDone;) {
      await this.#order.run(names, async () => {
        if (this.#isClosed) throw new ServerError("UNAVAILABLE", "Server exiting");
        const plan = await makePlan();
        isDone = plan.names.isSubsetOf(names);
        names = names.union(plan.names);
        try {
          if (isDone && begin()) await plan.run();
        } finally {
          await plan.done?.();
        }
      });
    }
  }

  /** A model with those it is composed of and all ensembles around them, as far as is known. */
  #related(name: string): ReadonlySet<string> {
    return this.#withDependents(this.#withComposing(name));
  }

  #withComposing(name: string): Set<string> {
    const names = new Set([name]);
    for (const each of names) {
      const source = this.#parts.registry.get(each)?.ensemble;
      for (const part of source === undefined ? [] : composingModels(source.config)) {
        names.add(part);
      }
    }
    return names;
  }

  #withDependents(names: Iterable<string>): ReadonlySet<string> {
    const all = new Set(names);
    for (const { name } of dependentEnsembles([...all], this.#ensembles())) all.add(name);
    return all;
  }

  /** Ensembles that serve, or should. */
  #ensembles(): RepositoryModel[] {
    return this.#parts.registry.entries().flatMap(({ ensemble }) => ensemble ?? []);
  }

  /** Loads what a model is composed of and then the model, and binds the ensembles around all that was loaded. */
  async #load(plan: LoadPlan): Promise<void> {
    const { name, sources, loaded } = plan;
    const configOf = (each: string): ModelConfig | undefined => sources.get(each)?.config;
    const loads = new Map<string, Promise<void>>();
    for (const source of sortByDependency([...sources.values()])) {
      // The parts of a circle have no order: none of them can be loaded.
      if (source.name !== name && findCircle(source.name, configOf) !== undefined) continue;
      const before = composingModels(source.config).map((part) => loads.get(part));
      loads.set(
        source.name,
        Promise.allSettled(before).then(() =>
          source.name === name ? this.#loadMain(plan) : this.#loadPart(source, plan)
        ),
      );
    }
    const results = await Promise.allSettled([...loads.values()]);
    await this.#rebind(loaded);
    const failed = results.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  async #loadMain({ name, options, sources, loaded, removed }: LoadPlan): Promise<void> {
    const { registry } = this.#parts;
    const source = sources.get(name)!;
    const entry = registry.getOrCreate(name);
    entry.isImplicit = false;
    if (options.isStart === true && checkLoaded(entry)) return;
    if (isUnchanged(entry, source) && !isAnyLoaded(source, loaded)) return;
    if (isEnsemble(source.config)) await this.#loadEnsemble(source, options, sources);
    else {
      const outcome = await this.#versions.load(source);
      removed.push(outcome.removed);
      entry.ensemble = undefined;
      // Ensembles hold what they are bound to: with other instances it is still the same.
      if (!outcome.isNew) return;
    }
    loaded.add(name);
  }

  async #loadEnsemble(
    source: RepositoryModel,
    options: LoadOptions,
    sources: ReadonlyMap<string, RepositoryModel>,
  ): Promise<void> {
    const { name } = source;
    const entry = this.#parts.registry.getOrCreate(name);
    // What should serve from the start comes when its models come.
    const remembers = this.#reader.remembers(name, options);
    if (remembers) entry.ensemble = source;
    try {
      const circle = findCircle(name, (each) => sources.get(each)?.config);
      if (circle !== undefined) throw circleError(circle);
      this.#parts.checkEnsemble(source);
    } catch (reason) {
      const error = ServerError.from(reason);
      this.#parts.log.error(`failed to load '${name}': ${error.toReason()}`);
      if (remembers) this.#reader.noteFailure(name, error, options);
      throw new ServerError(error.code, `load failed for model '${name}': ${error.message}\n`, {
        cause: error,
      });
    }
    await this.#versions.load(source);
    entry.ensemble = source;
  }

  /** Loads a model because an ensemble needs it, unless it serves as it is on disk; why it fails the ensemble says. */
  async #loadPart(source: RepositoryModel, plan: LoadPlan): Promise<void> {
    const { options, loaded, removed } = plan;
    const { registry, checkEnsemble } = this.#parts;
    const entry = registry.getOrCreate(source.name);
    const isServing = entry.ready().length > 0;
    // What was tried in this start is not tried again.
    if (!isServing && options.isStart === true && entry.versions().length > 0) return;
    const isChanged = source.stamp !== undefined && entry.stamp !== undefined &&
      source.stamp !== entry.stamp;
    if (isServing && !isChanged && !isAnyLoaded(source, loaded)) return;
    try {
      checkEnsemble(source);
      if (!isServing) entry.isImplicit = true;
      const outcome = await this.#versions.load(source);
      removed.push(outcome.removed);
    } catch (error) {
      const { message } = ServerError.from(error);
      this.#parts.log.error(`failed to load '${source.name}' for an ensemble: ${message}`);
      return;
    }
    registry.setReadFailure(source.name, undefined);
    entry.ensemble = isEnsemble(source.config) ? source : undefined;
    loaded.add(source.name);
  }

  /** Binds the ensembles around models that changed to what serves now; those that cannot be are taken out of service. */
  async #rebind(changed: Iterable<string>): Promise<void> {
    const { registry, checkEnsemble, log } = this.#parts;
    const names = new Set(changed);
    for (const source of dependentEnsembles([...names], this.#ensembles())) {
      const { name } = source;
      // It was loaded after the models it is composed of.
      if (names.has(name)) continue;
      try {
        checkEnsemble(source);
        await this.#versions.load(source);
        registry.setReadFailure(name, undefined);
      } catch (reason) {
        const error = ServerError.from(reason);
        log.error(`'${name}' is taken out of service: ${error.toReason()}`);
        if (registry.readFailure(name) !== undefined) this.#reader.noteFailure(name, error);
        // Without the models it is composed of an ensemble is unloaded, which is no fault (management.md §6).
        const isUnloaded = composingModels(source.config)
          .some((part) => registry.get(part)?.latest === undefined);
        void this.#versions.retireAll(name, isUnloaded ? undefined : error.toReason());
      }
    }
  }

  /** A model with what was loaded only because of it, and nothing else needs. */
  #unloadedWith(name: string): string[] {
    const { registry } = this.#parts;
    const names = new Set([name]);
    for (const each of names) {
      const ensemble = registry.get(each)?.ensemble;
      for (const part of ensemble === undefined ? [] : composingModels(ensemble.config)) {
        if (registry.get(part)?.isImplicit !== true) continue;
        const around = dependentEnsembles([part], this.#ensembles());
        if (around.every((dependent) => names.has(dependent.name))) names.add(part);
      }
    }
    return [...names];
  }

  #retireAll(name: string): Promise<void> {
    const { registry } = this.#parts;
    registry.setReadFailure(name, undefined);
    const entry = registry.get(name);
    if (entry !== undefined) {
      entry.ensemble = undefined;
      entry.isImplicit = false;
    }
    return this.#versions.retireAll(name);
  }
}

/** True when a model was loaded already in this start, with an ensemble. @throws ServerError when that failed. */
function checkLoaded(entry: ModelEntry): boolean {
  const versions = entry.versions();
  const failed = versions.filter(({ state }) => state !== "READY");
  if (failed.length > 0) throw loadError(entry.name, failed);
  return versions.length > 0;
}

function isAnyLoaded({ config }: RepositoryModel, loaded: ReadonlySet<string>): boolean {
  return composingModels(config).some((name) => loaded.has(name));
}

function circleError(circle: readonly string[]): ServerError {
  const [first, last] = [circle[0]!, circle.at(-1)!];
  return new ServerError(
    "INVALID_ARG",
    `circular dependency between ensembles: ${first} -> ... -> ${last} -> ${first}; the whole ` +
      `circle is ${[...circle, first].join(" -> ")}`,
  );
}

/**
 * True when exactly these versions serve, loaded from what the directory still holds (management.md §5), and all of
 * their instances may answer.
 */
function isUnchanged(entry: ModelEntry, source: RepositoryModel): boolean {
  if (source.stamp === undefined || source.stamp !== entry.stamp) return false;
  const ready = entry.ready();
  if (ready.some(({ hasGivenUp }) => hasGivenUp)) return false;
  return ready.map(({ version }) => version).join() === source.versions.join();
}
