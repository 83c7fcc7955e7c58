import { ServerError } from "../../proto/status.ts";
import type {
  BackendContext,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
} from "../backend.ts";
import { ExecuteWatch } from "./execute_watch.ts";
import type { ModelSettings } from "./model_settings.ts";
import { RestartPace } from "../restart_pace.ts";
import { within } from "./within.ts";
import { startModelWorker } from "./worker_link.ts";
import type { InstanceFacts, ModelFacts } from "./worker_protocol.ts";
import { failure, WorkerSession } from "./worker_session.ts";

const READY_TIMEOUT_MS = 5_000;
const FINALIZE_TIMEOUT_MS = 10_000;
/** Requests wait so long at most for a Worker that is being started again. */
const START_WAIT_MS = 10_000;
/** Requests wait for a Worker that is about to be started again within this time, else they fail at once. */
const MAX_WAIT_MS = 1_000;

/** What an instance is made of. */
export interface InstanceParts {
  readonly placement: InstancePlacement;
  readonly context: BackendContext;
  readonly settings: ModelSettings;
  readonly facts: InstanceFacts;
}

interface Started {
  readonly session: WorkerSession;
  readonly watch: ExecuteWatch;
  readonly model: ModelFacts;
}

/** A model instance: one Worker, started again when it ends. */
export class TypeScriptInstance implements ModelInstance {
  readonly placement: InstancePlacement;
  readonly #parts: InstanceParts;
  readonly #pace = new RestartPace();
  #started: Started | undefined;
  #endReason = "";
  /** Resolves when a start that requests may wait for has succeeded or failed. */
  #starting: PromiseWithResolvers<void> | undefined;
  /** The Worker that is being initialized. */
  #initializing: WorkerSession | undefined;
  #restartTimer: ReturnType<typeof setTimeout> | undefined;
  #isDisposed = false;
  /** The question that is on its way to the model, also when whoever asked has given up. */
  #asked: Promise<unknown> | undefined;
  #readiness: ReturnType<NonNullable<ModelInstance["isReady"]>> | undefined;

  private constructor(parts: InstanceParts) {
    this.placement = parts.placement;
    this.#parts = parts;
  }

  /** Starts the Worker and initializes the model. @throws ServerError with what the model threw. */
  static async create(parts: InstanceParts): Promise<TypeScriptInstance> {
    const instance = new TypeScriptInstance(parts);
    try {
      await instance.#start();
    } catch (reason) {
      instance.#isDisposed = true;
      throw ServerError.from(reason);
    }
    return instance;
  }

  async #start(): Promise<void> {
    const { context, settings, facts } = this.#parts;
    let isInitialized = false;
    const session = new WorkerSession(startModelWorker(settings.permissions), {
      instanceName: facts.instanceName,
      context,
      onEnd: (reason) => {
        if (isInitialized) this.#onEnd(reason);
      },
    });
    this.#initializing = session;
    const question = { what: "initialize", file: settings.file, facts } as const;
    const { initializeTimeoutMs } = settings;
    try {
      const model = await within(session.link.ask(question), initializeTimeoutMs, () => {
        const text = `initialize() took longer than ${initializeTimeoutMs / 1000} s`;
        return new ServerError("INTERNAL", text);
      }) as ModelFacts;
      if (this.#isDisposed) throw new ServerError("UNAVAILABLE", "the instance was removed");
      isInitialized = true;
      const watch = new ExecuteWatch(session, settings, context.now);
      this.#started = { session, watch, model };
    } catch (reason) {
      session.link.end("it was not initialized");
      throw reason;
    } finally {
      this.#initializing = undefined;
    }
  }

  #onEnd(reason: string): void {
    const { context, settings } = this.#parts;
    const { name } = this.placement;
    this.#started?.watch[Symbol.dispose]();
    this.#started = undefined;
    this.#endReason = reason;
    if (this.#isDisposed) return;
    context.log.error(`Worker of model instance '${name}' ended: ${reason}`);
    if (settings.restart === "never") return;
    this.#scheduleRestart();
  }

  #scheduleRestart(): void {
    const { context } = this.#parts;
    const { name } = this.placement;
    const delayMs = this.#pace.fail(context.now());
    if (delayMs === undefined) {
      context.log.error(`Worker of model instance '${name}' ends again and again, it stays down`);
      this.#starting = undefined;
      return;
    }
    const starting = Promise.withResolvers<void>();
    this.#starting = delayMs <= MAX_WAIT_MS ? starting : undefined;
    this.#restartTimer = setTimeout(() => void this.#restart().then(starting.resolve), delayMs);
  }

  async #restart(): Promise<void> {
    const { log } = this.#parts.context;
    const { name } = this.placement;
    try {
      await this.#start();
      this.#starting = undefined;
      log.info(`Worker of model instance '${name}' was started again`);
    } catch (reason) {
      if (this.#isDisposed) return;
      this.#endReason = ServerError.from(reason).message;
      log.error(`Worker of model instance '${name}' cannot be started again: ${this.#endReason}`);
      this.#scheduleRestart();
    }
  }

  async execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport> {
    const { now } = this.#parts.context;
    if (this.#started === undefined) await this.#waitForStart();
    const started = this.#started;
    if (started === undefined) return this.#unhealthy(requests);
    started.watch.wake();
    const running = started.session.run(requests);
    const inputEndMs = now();
    const outcomes = await running;
    return { outcomes, inputEndMs, outputStartMs: now() };
  }

  /** `initialize` may take as long as it likes, requests do not wait so long for it. */
  async #waitForStart(): Promise<void> {
    if (this.#starting === undefined) return;
    const waited = Promise.withResolvers<void>();
    const timer = setTimeout(waited.resolve, START_WAIT_MS);
    await Promise.race([this.#starting.promise, waited.promise]);
    clearTimeout(timer);
  }

  #unhealthy(requests: readonly ExecuteRequest[]): ExecuteReport {
    const { name } = this.placement;
    const at = this.#parts.context.now();
    const text = `Worker '${name}' is not healthy: ${this.#endReason}`;
    const error = failure(name, text, "INTERNAL");
    return { outcomes: requests.map(() => ({ error })), inputEndMs: at, outputStartMs: at };
  }

  isReady(): Promise<{ readonly isReady: boolean; readonly reason?: string }> {
    const { name } = this.placement;
    const started = this.#started;
    if (started === undefined) {
      return Promise.resolve({ isReady: false, reason: `Worker '${name}' is not healthy.` });
    }
    if (!started.model.hasIsReady) return Promise.resolve({ isReady: true });
    return this.#readiness ??= this.#askReady(started).finally(() => this.#readiness = undefined);
  }

  async #askReady({ session }: Started): Promise<{ isReady: boolean; reason?: string }> {
    const { name } = this.placement;
    try {
      const asked = this.#asked ??= session.link.ask({ what: "isReady" })
        .finally(() => this.#asked = undefined);
      const isReady = await within(asked, READY_TIMEOUT_MS, () => {
        return new ServerError("INTERNAL", "Timed out waiting for user-defined isReady() response");
      });
      if (isReady === true) return { isReady };
      const reason = `Model '${name}' is not ready (user-defined check failed).`;
      return { isReady: false, reason };
    } catch (reason) {
      return { isReady: false, reason: ServerError.from(reason).message };
    }
  }

  /** Lets the model finalize, and ends the Worker. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isDisposed = true;
    clearTimeout(this.#restartTimer);
    this.#starting?.resolve();
    this.#initializing?.link.end("the model is unloaded");
    const started = this.#started;
    if (started === undefined) return;
    const { link } = started.session;
    try {
      await within(link.ask({ what: "finalize" }), FINALIZE_TIMEOUT_MS, () => {
        return new ServerError("INTERNAL", `it took longer than ${FINALIZE_TIMEOUT_MS / 1000} s`);
      });
    } catch (reason) {
      const { message } = ServerError.from(reason);
      this.#parts.context.log.info(`finalize() of '${this.placement.name}' failed: ${message}`);
    }
    link.end("the model is unloaded");
  }
}
