import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type {
  BackendContext,
  BackendLog,
  ExecuteReport,
  ExecuteRequest,
  InstancePlacement,
  InstancePreference,
  KindOffer,
  ModelSource,
} from "../backend.ts";
import { SYSTEM_TIMERS } from "../pause.ts";
import type { Frame, FramePayload } from "../process/frame.ts";
import { readFrames } from "../process/read_frames.ts";
import { createFramePort, type FramePort, sendFree } from "../process/stub_link.ts";
import { writeLog } from "../process/stub_log.ts";
import { StubMemory } from "../process/stub_memory.ts";
import type { StubProcess } from "../process/stub_process.ts";
import { clipText } from "../process/wire_values.ts";
import { answerDeviceCall } from "./device_calls.ts";
import { Executions } from "./executions.ts";
import { FRAME, type Json, readConfig, wireConfig, wireSource } from "./isolated_wire.ts";
import type { IsolationSettings } from "./isolation_settings.ts";
import { readOffers, readPreference } from "./offer_wire.ts";
import { Questions } from "./questions.ts";
import { startProgram } from "./start_program.ts";

/** What a process is started with. */
export interface IsolatedProcessParts {
  /** Name of the backend, and of the folder of backends in Python. */
  readonly backend: string;
  readonly directory: string;
  readonly context: BackendContext;
  readonly settings: IsolationSettings;
  /** Of the backend, without those that ask for isolation. */
  readonly backendSettings: ReadonlyMap<string, string>;
}

/** What a process has said of its backend. */
export interface OpenedBackend {
  readonly name: string;
  readonly preference: InstancePreference;
  readonly hasKinds: boolean;
  readonly usesSecondaryDevices: boolean;
}

/** What the server says a model's own readiness is. */
export interface Readiness {
  readonly isReady: boolean;
  readonly reason?: string;
}

/** So long what a dead process has sent is still read, and its status awaited. */
const LAST_WORDS_MS = 30;
/** A process whose device is lost may finish its batch within this time. */
const LOST_GRACE_MS = 5000;

/** A process that hosts a backend, then a model, then an instance: everything that passes between it and the server. */
export class IsolatedProcess {
  /** Settles when nothing of the process is left; tells how it ended. */
  readonly ended: Promise<string>;
  readonly #parts: IsolatedProcessParts;
  readonly #process: StubProcess;
  readonly #memory: StubMemory;
  readonly #port: FramePort;
  readonly #executions: Executions;
  readonly #questions: Questions;
  #opened: OpenedBackend | undefined;
  #source: ModelSource | undefined;
  /** What it does, for texts. */
  #what: string;
  #verboseLevel: number;
  #failure = "";
  #isOver = false;
  #isLost = false;

  private constructor(parts: IsolatedProcessParts, process: StubProcess) {
    this.#parts = parts;
    this.#process = process;
    this.#what = `backend '${parts.backend}'`;
    const memory = this.#memory = new StubMemory(parts.settings.memory);
    const port = this.#port = createFramePort(process.connection("A"), memory, (reason) => {
      if (reason instanceof RangeError) this.#fail(reason);
      else this.kill("");
    });
    memory.sendFree = () => sendFree(port);
    this.#questions = new Questions(port);
    const { now, log } = parts.context;
    const onIdle = () => {
      if (this.#isLost) this.kill("");
    };
    this.#executions = new Executions({ port, memory, now, onIdle });
    this.#verboseLevel = verboseLevel(log);
    this.ended = this.#run();
  }

  /** Starts a process and has it open the backend. @throws ServerError; nothing of the process is left then. */
  static async start(parts: IsolatedProcessParts): Promise<IsolatedProcess> {
    const process = await startProgram(parts.backend, parts.settings.timeoutMs);
    const started = new IsolatedProcess(parts, process);
    try {
      await started.#open();
      return started;
    } catch (reason) {
      await started.end();
      throw reason;
    }
  }

  get opened(): OpenedBackend {
    return this.#opened!;
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** It takes no more batches. */
  get isOver(): boolean {
    return this.#isOver || this.#isLost;
  }

  /** @throws ServerError, also for offers that cannot be. */
  async kinds(source: ModelSource | undefined): Promise<readonly KindOffer[]> {
    const about = source === undefined ? {} : { source: wireSource(source) };
    const payload = source === undefined ? undefined : wireConfig(source.config);
    return this.#checked(readOffers, (await this.#askToLoad("kinds", about, payload)).json.v);
  }

  /** The configuration, completed. @throws ServerError */
  async autoComplete(source: ModelSource): Promise<ModelConfig> {
    const { payload } = await this.#askOf("autoComplete", source);
    return this.#checked(readConfig, payload);
  }

  /** @throws ServerError */
  async openModel(source: ModelSource): Promise<void> {
    await this.#askOf("openModel", source);
  }

  /** @throws ServerError */
  async createInstance(placement: InstancePlacement): Promise<{ readonly hasIsReady: boolean }> {
    this.#what = `instance '${placement.name}'`;
    const { json } = await this.#askToLoad("createInstance", { placement });
    return { hasIsReady: (json.v as Json | null)?.isReady === true };
  }

  /** Whether a request may be sent behind those that run. */
  takesAhead(request: ExecuteRequest): boolean {
    return !this.isOver && this.#executions.takesAhead(request);
  }

  /** Runs a batch. Never rejects; undefined when the process ended before it began. The process is not over. */
  execute(requests: readonly ExecuteRequest[]): Promise<ExecuteReport | undefined> {
    const level = verboseLevel(this.#parts.context.log);
    if (level !== this.#verboseLevel) {
      this.#verboseLevel = level;
      this.#port.send(FRAME.logLevel, 0, { verbose: level });
    }
    return this.#executions.execute(requests);
  }

  /** Asks the model whether it is ready. @throws ServerError when the process ends meanwhile */
  async isReady(): Promise<Readiness> {
    const { isReady, reason } = (await this.#questions.ask("isReady")).json.v as Json;
    return {
      isReady: isReady === true,
      ...(typeof reason === "string" ? { reason: clipText(reason) } : {}),
    };
  }

  /** Ends the process when it has freed what it holds, or when `timeoutMs` is over. */
  async close(timeoutMs: number): Promise<void> {
    const timer = SYSTEM_TIMERS.setTimer(timeoutMs, () => this.kill(""));
    try {
      await this.#questions.ask("close");
    } catch {
      // What cannot be freed ends with the process.
    } finally {
      timer.cancel();
      await this.end();
    }
  }

  /** Ends the process at once. */
  async end(): Promise<void> {
    this.kill("");
    await this.ended;
  }

  /** The same without a wait. `reason` is told to those who wait for an answer; "" = none. */
  kill(reason: string): void {
    this.#failure ||= reason;
    this.#process.kill();
  }

  async #open(): Promise<void> {
    const { backend, directory, context, settings, backendSettings } = this.#parts;
    const segment = this.#memory.offer() ?? -1;
    const timer = SYSTEM_TIMERS.setTimer(
      settings.timeoutMs,
      () => this.kill(`no word within ${settings.timeoutMs / 1000} s (isolation-timeout-seconds)`),
    );
    try {
      const { json } = await this.#questions.ask("open", {
        pid: Deno.pid,
        segment,
        limits: settings.memory,
        backend,
        directory,
        settings: [...backendSettings],
        verbose: this.#verboseLevel,
        devices: context.devices !== undefined,
      });
      const { memory, name, preference, hasKinds, usesSecondaryDevices } = json.v as Json;
      this.#memory.agree({ pid: this.pid, isShared: memory === true });
      this.#opened = {
        name: String(name),
        preference: this.#checked(readPreference, preference),
        hasKinds: hasKinds === true,
        usesSecondaryDevices: usesSecondaryDevices === true,
      };
    } finally {
      timer.cancel();
    }
  }

  async #run(): Promise<string> {
    const reading = readFrames(this.#process.connection("A"), (frame) => this.#take(frame));
    const reason = await Promise.race([reading, this.#process.ended.then(() => {})]);
    if (reason !== undefined) this.#fail(reason);
    this.#process.kill();
    // What it has answered tells which batches had begun, its status why it is gone.
    const end = await within(LAST_WORDS_MS, Promise.all([this.#process.ended, reading]));
    this.#end(this.#failure || (end?.[0] ?? "it has ended"));
    const how = await this.#process.ended;
    this.#process.close();
    return this.#failure || how;
  }

  #take(frame: Frame): void {
    const { f: returned } = frame.json;
    if (returned !== undefined) this.#memory.takeBack(returned);
    const { context } = this.#parts;
    switch (frame.kind) {
      case FRAME.executed:
        return this.#executions.executed(frame);
      case FRAME.send:
        return this.#executions.sent(frame);
      case FRAME.answer:
        return this.#questions.answered(frame);
      case FRAME.mark:
        return this.#executions.marked(frame);
      case FRAME.log:
        return writeLog(context.log, frame);
      case FRAME.batchRetry:
        if (this.#source === undefined) return;
        return context.countBatchRetry(this.#source.name, this.#source.version);
      case FRAME.call:
        return void answerDeviceCall(context.devices, frame, this.#port);
      case FRAME.deviceLost:
        return this.#loseDevice(frame.json.m);
      case FRAME.free:
        return;
      default:
        throw new RangeError(`Frame of kind ${frame.kind} is not expected`);
    }
  }

  async #askOf(method: string, source: ModelSource): Promise<Frame> {
    this.#source = source;
    this.#what = `model '${source.name}'`;
    return await this.#askToLoad(method, { source: wireSource(source) }, wireConfig(source.config));
  }

  /** Asks for a part of a load: native code that never comes back is ended with its process. */
  async #askToLoad(method: string, about: Json, payload?: FramePayload): Promise<Frame> {
    const { loadTimeoutMs } = this.#parts.settings;
    const asked = this.#questions.ask(method, about, payload);
    if (loadTimeoutMs === 0) return await asked;
    const reason = `no end of '${method}' within ${loadTimeoutMs / 1000} s (load-timeout-seconds)`;
    const timer = SYSTEM_TIMERS.setTimer(loadTimeoutMs, () => this.kill(reason));
    try {
      return await asked;
    } finally {
      timer.cancel();
    }
  }

  /** What a process says that it cannot mean is told as its fault. */
  #checked<Value, Result>(read: (value: Value) => Result, value: Value): Result {
    try {
      return read(value);
    } catch (reason) {
      this.#fail(reason);
      throw new ServerError("INTERNAL", `process of ${this.#what} is broken: ${reason}`);
    }
  }

  /** The process ends when its batches have: it is of no use any more. */
  #loseDevice(reason: unknown): void {
    if (this.#isLost) return;
    this.#isLost = true;
    this.#failure ||= `its device is lost: ${clipText(String(reason))}`;
    if (this.#executions.batchCount === 0) return this.kill("");
    const timer = setTimeout(() => this.kill(""), LOST_GRACE_MS);
    void this.#process.ended.then(() => clearTimeout(timer));
  }

  /** The process does not keep to the protocol. */
  #fail(reason: unknown): void {
    if (this.#isOver) return;
    const text = reason instanceof Error ? reason.message : String(reason);
    this.#parts.context.log.error(
      `process of ${this.#what} (pid ${this.pid}) is ended: it does not keep to the protocol with ` +
        `the server: ${text}`,
    );
    this.kill(`it does not keep to the protocol with the server: ${text}`);
  }

  #end(how: string): void {
    this.#isOver = true;
    const error = this.#deathError(how);
    this.#questions.failAll(error);
    this.#executions.failAll(
      new ServerError(
        "INTERNAL",
        `the process of ${this.#what} (pid ${this.pid}) ended while it ran this request: ${how}`,
      ),
    );
    this.#memory.close();
  }

  #deathError(how: string): ServerError {
    return new ServerError(
      "INTERNAL",
      `the process of ${this.#what} (pid ${this.pid}) has ended: ${how}. The server itself is not ` +
        `hurt; if a native library crashed, its words are on standard error: try another version of ` +
        `the library or of the model's files`,
    );
  }
}

async function within<Value>(
  timeMs: number,
  settling: Promise<Value>,
): Promise<Value | undefined> {
  const late = Promise.withResolvers<undefined>();
  const timer = setTimeout(late.resolve, timeMs, undefined);
  try {
    return await Promise.race([settling, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

const VERBOSE_LEVEL_MAX = 9;

/** The highest level whose lines are written. */
function verboseLevel(log: BackendLog): number {
  if (log.isVerbose?.(1) !== true) return 0;
  let level = 1;
  while (level < VERBOSE_LEVEL_MAX && log.isVerbose(level + 1)) level++;
  return level;
}
