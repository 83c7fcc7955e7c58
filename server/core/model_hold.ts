import { ServerError } from "../../proto/status.ts";
import type { Log } from "./log.ts";
import type { AgentAction, AgentCall, RepositoryAgent } from "./repository_agent.ts";
import type { TemporaryFolder } from "./temporary_folders.ts";

/** An agent that was asked to load a model, and what it was told about it. */
export interface AgentRun {
  /** As in the configuration. */
  readonly name: string;
  readonly agent: RepositoryAgent;
  readonly call: Omit<AgentCall, "action">;
}

/** What a hold keeps. */
export interface ModelHoldParts {
  /** Name of the model, for the log. */
  readonly model: string;
  /** In the order of the configuration. */
  readonly runs: readonly AgentRun[];
  readonly folders: readonly TemporaryFolder[];
  readonly log: Log;
}

/**
 * Keeps what a model needs beside its own folder as long as anything loaded from it is left: temporary folders of files
 * that came with a request or from agents. Tells the agents what becomes of the model (management.md §5.2 and §12). It
 * is created with one user, who ends with `settle`.
 */
export class ModelHold {
  readonly #parts: ModelHoldParts;
  #userCount = 1;
  /** Some version was loaded from it, and is not being freed. */
  #loadedCount = 0;
  #isLoaded = false;

  constructor(parts: ModelHoldParts) {
    this.#parts = parts;
  }

  /** One more user. @throws TypeError when nothing is kept any more. */
  retain(): void {
    if (this.#userCount === 0) throw new TypeError("The hold keeps nothing any more");
    this.#userCount++;
  }

  /** One more user: a version of the model, loaded from what is kept. */
  retainLoaded(): void {
    this.retain();
    this.#loadedCount++;
  }

  /** Ends what `retainLoaded` began; `free` frees the version. Settles when that is done; rejects as `free` does. */
  async releaseLoaded(free: () => Promise<void> = () => Promise.resolve()): Promise<void> {
    this.#loadedCount--;
    await this.release(free);
  }

  /** The first user ends: the agents learn whether the model was loaded. Never rejects. */
  async settle(): Promise<void> {
    this.#isLoaded = this.#loadedCount > 0;
    await this.#tell(this.#isLoaded ? "LOAD_COMPLETE" : "LOAD_FAIL", this.#parts.runs.toReversed());
    await this.release();
  }

  /** A user ends; with the last one all that was kept is removed, after `free`. Rejects only as `free` does. */
  async release(free: () => Promise<void> = () => Promise.resolve()): Promise<void> {
    this.#userCount--;
    if (this.#userCount > 0) return await free();
    const { runs } = this.#parts;
    if (this.#isLoaded) await this.#tell("UNLOAD", runs);
    try {
      await free();
    } finally {
      if (this.#isLoaded) await this.#tell("UNLOAD_COMPLETE", runs.toReversed());
      await this.#remove();
    }
  }

  async #tell(action: AgentAction, runs: readonly AgentRun[]): Promise<void> {
    const { model, log } = this.#parts;
    for (const { name, agent, call } of runs) {
      const fail = (message: string) =>
        log.warning(`repo agent '${name}' failed at ${action} of model '${model}': ${message}`);
      try {
        const { faults } = await agent.call({ ...call, action });
        for (const { message } of faults) fail(message);
      } catch (reason) {
        fail(ServerError.from(reason).message);
      }
    }
  }

  async #remove(): Promise<void> {
    const { model, folders, log } = this.#parts;
    for (const folder of folders) {
      try {
        await folder.remove();
      } catch (reason) {
        const { message } = ServerError.from(reason);
        log.error(`failed to remove a temporary directory of model '${model}': ${message}`);
      }
    }
  }
}
