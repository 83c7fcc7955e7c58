import { ServerError } from "../../proto/status.ts";
import type { Clock } from "./clock.ts";
import type { ModelIndexEntry } from "./inference_api.ts";
import { type Log, moduleLog } from "./log.ts";
import { splitModelId } from "./model_id.ts";
import type { ModelLifecycle, UnloadOptions } from "./model_lifecycle.ts";
import type { LoadOptions } from "./model_reader.ts";
import type { ModelRegistry, ReadFailure } from "./model_registry.ts";
import type { WatchedRepository } from "./model_repositories.ts";
import { DUPLICATE_MODEL_REASON, type ModelRepository } from "./model_repository.ts";
import type { RepositoryLook } from "./model_repository_look.ts";
import type { ServerOptions } from "./options.ts";
import { RepositoryPoller } from "./repository_poller.ts";
import { listStartedModels, type StartedModel, startModelNames } from "./start.ts";

/** What following the repositories works with. */
export interface RepositoryControlParts {
  readonly options: ServerOptions;
  readonly repository: ModelRepository | WatchedRepository;
  readonly registry: ModelRegistry;
  readonly lifecycle: ModelLifecycle;
  readonly clock: Clock;
  readonly log: Log;
  /** Calls back when something in the repositories may have changed; absent = nobody tells. */
  readonly watch?: ((onChange: () => void) => Disposable) | undefined;
}

/** Decides by control mode which models of the repositories are loaded when (management.md §1). */
export class RepositoryControl {
  readonly #parts: RepositoryControlParts;
  readonly #log: Log;
  /** What models of the repositories are kept under. */
  #ids: readonly string[] = [];
  #poller: RepositoryPoller | undefined;
  #watcher: Disposable | undefined;
  #isStopped = false;
  /** What the index says of models whose files polling cannot read. */
  readonly #unreadable = new Map<string, ReadFailure>();

  constructor(parts: RepositoryControlParts) {
    this.#parts = parts;
    this.#log = moduleLog(parts.log, "repository_control.ts");
  }

  /**
   * Loads the models of the start, and begins to poll if that is the mode.
   * @throws ServerError when a repository cannot be listed, or the options contradict each other.
   */
  async start(): Promise<{ readonly models: StartedModel[]; readonly isComplete: boolean }> {
    const { options, registry, lifecycle } = this.#parts;
    await this.#list();
    const look = options.modelControlMode === "poll" ? await this.#look() : undefined;
    const names = this.#startIds();
    const loads = await Promise.allSettled(
      names.map((name) => lifecycle.load(name, { isStart: true })),
    );
    if (look !== undefined) this.#poll(look);
    return {
      models: listStartedModels(registry, names, loads),
      isComplete: loads.every(({ status }) => status === "fulfilled"),
    };
  }

  /** Loads what clients call by this name: with namespacing in every repository that has it. */
  async load(
    name: string,
    options: Pick<LoadOptions, "override" | "isCall">,
  ): Promise<void> {
    const { lifecycle } = this.#parts;
    const ids = [name];
    if (this.#parts.options.modelNamespacing) {
      await this.#list().catch(() => {});
      const found = this.#ids.filter((id) => splitModelId(id).name === name);
      if (found.length > 0) ids.splice(0, 1, ...found);
    }
    await settleAll(ids.map((id) => lifecycle.load(id, options)));
    await this.#list().catch(() => {});
  }

  /** Unloads what clients call by this name. */
  async unload(name: string, options: UnloadOptions): Promise<void> {
    const { registry, lifecycle } = this.#parts;
    const known = registry.findAll(name).map((entry) => entry.name);
    const ids = known.length === 0 ? [name] : known;
    await settleAll(ids.map((id) => lifecycle.unload(id, options)));
  }

  /** The repository index (management.md §3.1). */
  async index(readyOnly: boolean): Promise<ModelIndexEntry[]> {
    // A repository that cannot be listed any more takes no model away: those known before are still shown.
    await this.#list().catch(() => {});
    return this.#parts.registry.index(this.#ids, readyOnly);
  }

  /** Follows the repositories no more. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#watcher?.[Symbol.dispose]();
    await this.#poller?.stop();
  }

  async #list(): Promise<void> {
    this.#log.verbose(1, "Polling model repository");
    this.#ids = await this.#parts.repository.list();
  }

  #startIds(): readonly string[] {
    const { options } = this.#parts;
    const names = startModelNames(options, this.#ids);
    if (!options.modelNamespacing || options.modelControlMode !== "explicit") return names;
    return names.flatMap((name) => {
      const ids = this.#ids.filter((id) => id === name || splitModelId(id).name === name);
      return ids.length === 0 ? [name] : ids;
    });
  }

  #look(): Promise<RepositoryLook> {
    const { repository } = this.#parts;
    if (!("look" in repository)) throw new TypeError("The repository cannot be polled");
    return repository.look();
  }

  #poll(first: RepositoryLook): void {
    if (this.#isStopped) return;
    const { options, lifecycle, registry, clock, log, watch } = this.#parts;
    this.#poller = new RepositoryPoller({
      clock,
      log: moduleLog(log, "repository_poller.ts"),
      intervalMs: options.repositoryPollSecs * 1000,
      look: () => this.#look(),
      load: (id) => lifecycle.load(id, { isPoll: true }),
      unload: async (id) => {
        await lifecycle.unload(id);
        registry.setVanished(id);
      },
      unloadDouble: async (id) => {
        await lifecycle.unload(id);
        registry.setReadFailure(id, {
          reason: DUPLICATE_MODEL_REASON,
          isDuplicate: true,
          sparesReadiness: true,
        });
        this.#log.error(`Poll failed for model directory '${id}': ${DUPLICATE_MODEL_REASON}`);
      },
      noteUnreadable: (id, reason) => this.#noteUnreadable(id, reason),
      affectedBy: (ids) =>
        options.modelNamespacing
          ? lifecycle.ensemblesAround(new Set(ids.map((id) => splitModelId(id).name)))
          : [],
      onLook: (ids) => this.#ids = ids,
    });
    this.#poller.start(first);
    this.#watcher = watch?.(() => this.#poller?.hasten());
  }

  /** A failure that is known already says more. */
  #noteUnreadable(id: string, reason: string | undefined): void {
    const { registry } = this.#parts;
    if (reason === undefined) {
      if (registry.readFailure(id) === this.#unreadable.get(id)) {
        registry.setReadFailure(id, undefined);
      }
      this.#unreadable.delete(id);
    } else if (registry.readFailure(id) === undefined) {
      const message = `failed to read the model directory: ${reason}`;
      const failure = {
        reason: new ServerError("INTERNAL", message).toReason(),
        isDuplicate: false,
        sparesReadiness: true,
      };
      this.#unreadable.set(id, failure);
      registry.setReadFailure(id, failure);
    }
  }
}

/** Waits for all; rejects as the first of those that failed. */
async function settleAll(operations: readonly Promise<void>[]): Promise<void> {
  const results = await Promise.allSettled(operations);
  const failed = results.find((result) => result.status === "rejected");
  if (failed !== undefined) throw ServerError.from(failed.reason);
}
