import { ServerError } from "../../proto/status.ts";
import type { Clock, Timer } from "./clock.ts";
import type { Log } from "./log.ts";
import { isDuplicate, type ModelLook, type RepositoryLook } from "./model_repository_look.ts";

/** What a poller works with. Nothing here rejects but for reasons that are in the log already. */
export interface RepositoryPollerParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly intervalMs: number;
  readonly look: () => Promise<RepositoryLook>;
  /** Loads a model, or loads it anew. */
  readonly load: (id: string) => Promise<void>;
  /** Takes a model out of service whose folder is gone. */
  readonly unload: (id: string) => Promise<void>;
  /** Takes a model out of service that is in two places. */
  readonly unloadDouble: (id: string) => Promise<void>;
  /** Called when the files of a model cannot be read, and with no reason when they can again or are gone. */
  readonly noteUnreadable: (id: string, reason: string | undefined) => void;
  /** Models that did not change themselves, but mean something else when these come or go. */
  readonly affectedBy: (ids: readonly string[]) => readonly string[];
  /** Called after each look with what the repositories hold. */
  readonly onLook: (ids: readonly string[]) => void;
}

/** Between the two looks at a change: what is still being written differs. */
const SETTLE_MS = 500;
/** Changes that never settle are read at the latest after so many looks; then the next poll sees the rest. */
const SETTLE_LOOKS = 120;
/** Hints of a file system watcher are not acted on at once: they come in swarms. */
const HINT_DELAY_MS = 100;

/**
 * Follows the repositories in control mode POLL (management.md §4): looks every interval what changed since a model was
 * loaded, and loads or unloads it when size and time of its files were the same in two looks. A model that cannot be
 * loaded is tried again when its files change. What a repository held that cannot be listed any more goes on serving.
 */
export class RepositoryPoller {
  readonly #parts: RepositoryPollerParts;
  /** What each model was like when it was loaded last. */
  readonly #applied = new Map<string, ModelLook>();
  readonly #lost = new Set<string>();
  readonly #unreadable = new Set<string>();
  #timer: Timer | undefined;
  #polling: Promise<void> | undefined;
  #isStopped = false;
  /** False after a hint that led to nothing: whatever writes there concerns no model. */
  #heedsHints = true;
  #isHinted = false;

  constructor(parts: RepositoryPollerParts) {
    this.#parts = parts;
  }

  /** Begins to poll, at once; `first` is what the repositories held before the models of the start were loaded. */
  start(first: RepositoryLook): void {
    for (const [id, model] of first.models) this.#applied.set(id, model);
    this.#plan(0);
  }

  /** Polls no more; settles when what is being done is done. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
    this.#wake?.();
    await this.#polling;
  }

  /** Something may have changed: the next poll comes sooner. */
  hasten(): void {
    if (!this.#heedsHints || this.#isStopped || this.#isHinted) return;
    this.#isHinted = true;
    if (this.#polling === undefined) this.#plan(HINT_DELAY_MS);
  }

  #plan(delayMs: number): void {
    this.#timer?.cancel();
    if (this.#isStopped) return;
    this.#timer = this.#parts.clock.setTimer(delayMs, () => {
      const wasHinted = this.#isHinted;
      this.#isHinted = false;
      this.#polling = this.#poll().then((hasChanged) => {
        this.#polling = undefined;
        this.#heedsHints = hasChanged || !wasHinted;
        this.#plan(this.#isHinted ? HINT_DELAY_MS : this.#parts.intervalMs);
      });
    });
  }

  /** One poll; true when it found anything. Never rejects. */
  async #poll(): Promise<boolean> {
    try {
      let look = await this.#look();
      let changed = this.#changed(look);
      if (changed.length === 0) return false;
      for (let count = 0; count < SETTLE_LOOKS; count++) {
        await this.#wait(Math.min(SETTLE_MS, this.#parts.intervalMs));
        if (this.#isStopped) return true;
        const again = await this.#look();
        const stable = changed.filter((id) => isSame(look.models.get(id), again.models.get(id)));
        await this.#apply(stable, again);
        changed = this.#changed(again);
        look = again;
        if (changed.length === 0) return true;
      }
      await this.#apply(changed, look);
      return true;
    } catch (reason) {
      // A fault of ours must not end polling.
      this.#parts.log.error(`polling failed: ${ServerError.from(reason).message}`);
      return false;
    }
  }

  async #look(): Promise<RepositoryLook> {
    const { look, log, onLook } = this.#parts;
    log.verbose(1, "Polling model repository");
    const seen = await look();
    this.#tellLost(seen);
    const kept = [...this.#applied].filter(([id, model]) =>
      isLost(model, seen) && !seen.models.has(id)
    );
    onLook([...seen.models.keys(), ...kept.map(([id]) => id)]);
    return seen;
  }

  /** Models that are not what they were when they were loaded last. */
  #changed(look: RepositoryLook): string[] {
    const ids: string[] = [];
    for (const [id, model] of look.models) {
      if (model.stamp === undefined) this.#tellUnreadable(id, model.reason);
      else {
        this.#forgetUnreadable(id);
        if (!isSame(this.#applied.get(id), model)) ids.push(id);
      }
    }
    for (const id of this.#unreadable) if (!look.models.has(id)) this.#forgetUnreadable(id);
    for (const [id, model] of this.#applied) {
      if (!look.models.has(id) && !isLost(model, look)) ids.push(id);
    }
    return ids;
  }

  async #apply(ids: readonly string[], look: RepositoryLook): Promise<void> {
    if (ids.length === 0 || this.#isStopped) return;
    const here = ids.filter((id) => look.models.has(id));
    const gone = ids.filter((id) => !look.models.has(id));
    const doubles = here.filter((id) => isDuplicate(look.models.get(id)!));
    const appeared = here.filter((id) => !this.#applied.has(id));
    for (const id of here) this.#applied.set(id, look.models.get(id)!);
    for (const id of gone) this.#applied.delete(id);
    const { load, unload, unloadDouble, affectedBy, log } = this.#parts;
    log.verbose(1, `changed in the model repository: ${ids.join(", ")}`);
    // They find other models before those they have are taken away.
    const affected = affectedBy([...appeared, ...gone]).filter((id) => !ids.includes(id));
    await each(affected, load);
    await each(gone, unload);
    await each(doubles, unloadDouble);
    await each(here.filter((id) => !doubles.includes(id)), load);
  }

  #tellLost({ lost }: RepositoryLook): void {
    for (const [repository, reason] of lost) {
      if (this.#lost.has(repository)) continue;
      this.#lost.add(repository);
      this.#parts.log.error(
        `model repository '${repository}' cannot be polled: ${reason}; its models go on serving`,
      );
    }
    for (const repository of [...this.#lost].filter((path) => !lost.has(path))) {
      this.#lost.delete(repository);
      this.#parts.log.info(`model repository '${repository}' can be polled again`);
    }
  }

  #tellUnreadable(id: string, reason: string): void {
    if (this.#unreadable.has(id)) return;
    this.#unreadable.add(id);
    this.#parts.noteUnreadable(id, reason);
    this.#parts.log.error(
      `Poll failed for model directory '${id}': ${reason}; if the model serves, it goes on serving`,
    );
  }

  #forgetUnreadable(id: string): void {
    if (this.#unreadable.delete(id)) this.#parts.noteUnreadable(id, undefined);
  }

  #wake: (() => void) | undefined;

  #wait(durationMs: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#parts.clock.setTimer(durationMs, resolve);
      this.#wake = () => {
        timer.cancel();
        resolve();
      };
    });
  }
}

function isSame(one: ModelLook | undefined, other: ModelLook | undefined): boolean {
  return one?.stamp === other?.stamp &&
    one?.repositories.join("\n") === other?.repositories.join("\n");
}

function isLost({ repositories }: ModelLook, { lost }: RepositoryLook): boolean {
  return repositories.some((repository) => lost.has(repository));
}

/** One that fails, and has told so, holds up no other. */
async function each(
  ids: readonly string[],
  operation: (id: string) => Promise<void>,
): Promise<void> {
  await Promise.allSettled(ids.map(operation));
}
