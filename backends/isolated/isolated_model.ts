import type { BackendModel, InstancePlacement, ModelInstance, ModelSource } from "../backend.ts";
import { SYSTEM_TIMERS } from "../pause.ts";
import { RestartPace } from "../restart_pace.ts";
import { IsolatedInstance, type StartedInstance } from "./isolated_instance.ts";
import { IsolatedProcess, type IsolatedProcessParts } from "./isolated_process.ts";

/** A model whose instances have a process each, in which all of the model is. */
export class IsolatedModel implements BackendModel {
  readonly #parts: IsolatedProcessParts;
  readonly #source: ModelSource;
  /** Has the model open, and becomes the process of the first instance. */
  #spare: IsolatedProcess | undefined;

  constructor(parts: IsolatedProcessParts, source: ModelSource, opened: IsolatedProcess) {
    this.#parts = parts;
    this.#source = source;
    this.#spare = opened;
  }

  async createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    const { context, settings } = this.#parts;
    const spare = this.#spare;
    this.#spare = undefined;
    const never = new AbortController();
    const opened = spare === undefined || spare.isOver ? undefined : spare;
    const first = await this.#start(placement, never.signal, opened);
    return new IsolatedInstance(
      {
        name: placement.name,
        start: (signal) => this.#start(placement, signal),
        restartPace: new RestartPace(),
        executeTimeoutMs: settings.executeTimeoutMs,
        closeTimeoutMs: settings.timeoutMs,
        timers: SYSTEM_TIMERS,
        now: context.now,
        warn: (message) => context.log.warning(message),
      },
      placement,
      first,
    );
  }

  async #start(
    placement: InstancePlacement,
    signal: AbortSignal,
    opened?: IsolatedProcess,
  ): Promise<StartedInstance> {
    const session = opened ?? await IsolatedProcess.start(this.#parts);
    const giveUp = () => session.kill("the model is unloaded");
    signal.addEventListener("abort", giveUp);
    try {
      if (signal.aborted) giveUp();
      if (opened === undefined) await session.openModel(this.#source);
      const { hasIsReady } = await session.createInstance(placement);
      const { log } = this.#parts.context;
      log.info(`instance '${placement.name}' has a process of its own, pid ${session.pid}`);
      return { session, hasIsReady };
    } catch (reason) {
      await session.end();
      throw reason;
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const spare = this.#spare;
    this.#spare = undefined;
    await spare?.end();
  }
}
