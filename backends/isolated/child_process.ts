import { dirname } from "node:path";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { prepareChildSignals } from "../../ffi/posix/child_signals.ts";
import type {
  Backend,
  BackendContext,
  BackendModel,
  InstancePlacement,
  ModelInstance,
  ModelSource,
} from "../backend.ts";
import type { Frame, FramePayload } from "../process/frame.ts";
import { readFrames } from "../process/read_frames.ts";
import { createFramePort, type FramePort, sendFree } from "../process/stub_link.ts";
import { type MemoryLimits, StubMemory } from "../process/stub_memory.ts";
import { ChildContext, type ContextOrder } from "./child_context.ts";
import { ChildExecutions } from "./child_executions.ts";
import {
  FRAME,
  type Json,
  readConfig,
  readSource,
  wireConfig,
  wireError,
} from "./isolated_wire.ts";

/** Opens a backend in this process; undefined for an unknown name. */
export type OpenBackendHere = (
  name: string,
  context: BackendContext,
  directory: string,
) => Promise<Backend> | undefined;

/** What the server says first. */
interface OpenOrder extends ContextOrder {
  readonly pid: number;
  readonly segment: number;
  readonly limits: MemoryLimits;
  readonly backend: string;
  readonly directory: string;
}

interface Answer {
  readonly value?: unknown;
  readonly payload?: FramePayload;
}

/** Runs one instance of a model for the server that listens at `socketPath`, until that ends the connection. */
export async function hostInstance(
  socketPath: string,
  openBackend: OpenBackendHere,
): Promise<number> {
  let connection: Deno.UnixConn;
  try {
    connection = await Deno.connect({ transport: "unix", path: socketPath });
  } finally {
    // Nothing shall be left of a server that is killed now.
    await removeSocket(socketPath);
  }
  prepareChildSignals();
  await connection.write(Uint8Array.of("A".charCodeAt(0)));
  const child = new ChildProcess(connection, openBackend);
  const fault = await readFrames(connection, (frame) => child.take(frame));
  return fault === undefined ? 0 : 1;
}

/** Only what is known to be there: whoever calls this program by hand may name any path. */
async function removeSocket(path: string): Promise<void> {
  try {
    if (!(await Deno.lstat(path)).isSocket) return;
    await Deno.remove(path);
    await Deno.remove(dirname(path));
  } catch {
    // The server has removed it, or keeps something else there.
  }
}

class ChildProcess {
  readonly #connection: Deno.UnixConn;
  readonly #openBackend: OpenBackendHere;
  #memory: StubMemory | undefined;
  #port: FramePort | undefined;
  #context: ChildContext | undefined;
  #backend: Backend | undefined;
  #model: BackendModel | undefined;
  #instance: ModelInstance | undefined;
  #executions: ChildExecutions | undefined;
  #config: ModelConfig | undefined;

  constructor(connection: Deno.UnixConn, openBackend: OpenBackendHere) {
    this.#connection = connection;
    this.#openBackend = openBackend;
  }

  /** @throws RangeError, SyntaxError for what cannot be. */
  take(frame: Frame): void {
    const { f: returned } = frame.json;
    if (returned !== undefined) this.#memory!.takeBack(returned);
    switch (frame.kind) {
      case FRAME.execute:
        return this.#executions!.execute(frame);
      case FRAME.cancelled:
        return this.#executions!.cancelled(frame);
      case FRAME.credit:
        return this.#executions!.credit(frame);
      case FRAME.ask:
        return void this.#answer(frame);
      case FRAME.reply:
        return this.#context!.answered(frame.id, frame.json);
      case FRAME.logLevel:
        return this.#context!.setVerboseLevel(Number(frame.json.verbose));
      case FRAME.free:
        return;
      default:
        throw new RangeError(`Frame of kind ${frame.kind} is not expected`);
    }
  }

  async #answer(frame: Frame): Promise<void> {
    if (frame.json.m === "open") this.#begin(frame.json as unknown as OpenOrder);
    const port = this.#port!;
    try {
      const { value = null, payload } = await this.#do(frame);
      port.send(FRAME.answer, frame.id, { v: value }, payload);
    } catch (reason) {
      port.send(FRAME.answer, frame.id, { e: wireError(reason) });
    }
  }

  #begin(order: OpenOrder): void {
    const memory = this.#memory = new StubMemory(order.limits);
    const port = this.#port = createFramePort(this.#connection, memory, () => Deno.exit(1));
    memory.sendFree = () => sendFree(port);
    this.#context = new ChildContext(port, order);
  }

  async #do({ json, payload }: Frame): Promise<Answer> {
    switch (json.m) {
      case "open":
        return { value: await this.#open(json as unknown as OpenOrder) };
      case "kinds":
        return { value: await this.#kinds(json, payload) };
      case "autoComplete": {
        const source = this.#source(json, payload);
        await this.#backend!.autoComplete(source);
        return { payload: wireConfig(source.config) };
      }
      case "openModel":
        this.#model = await this.#backend!.openModel(this.#source(json, payload));
        return {};
      case "createInstance":
        return { value: await this.#createInstance(json.placement as InstancePlacement) };
      case "isReady":
        return { value: await this.#instance!.isReady?.() ?? { isReady: true } };
      case "close":
        return await this.#close();
      default:
        throw new RangeError(`Nothing is known of '${String(json.m)}'`);
    }
  }

  async #open(order: OpenOrder): Promise<Json> {
    const isShared = this.#memory!.accept(order);
    const opening = this.#openBackend(order.backend, this.#context!.context, order.directory);
    if (opening === undefined) {
      throw new ServerError("NOT_FOUND", `there is no backend '${order.backend}'`);
    }
    const backend = this.#backend = await opening;
    const { name, preference, kinds, usesSecondaryDevices = false } = backend;
    const hasKinds = kinds !== undefined;
    return { memory: isShared, name, preference, hasKinds, usesSecondaryDevices };
  }

  async #kinds(json: Json, payload: Uint8Array): Promise<unknown> {
    const devices = this.#context!.context.devices!;
    const source = json.source === undefined ? undefined : this.#source(json, payload);
    return await this.#backend!.kinds!(devices, source);
  }

  /** The configuration stays one object: backends know by it what they have prepared. */
  #source({ source }: Json, payload: Uint8Array): ModelSource {
    const config = readConfig(payload);
    const kept = this.#config ??= config;
    if (kept !== config) {
      for (const key of Object.keys(kept)) delete (kept as unknown as Record<string, unknown>)[key];
      Object.assign(kept, config);
    }
    return readSource(source as Json, kept);
  }

  async #createInstance(placement: InstancePlacement): Promise<Json> {
    const instance = this.#instance = await this.#model!.createInstance(placement);
    const { now } = this.#context!.context;
    this.#executions = new ChildExecutions(instance, {
      port: this.#port!,
      memory: this.#memory!,
      now,
    });
    return { isReady: instance.isReady !== undefined };
  }

  async #close(): Promise<Answer> {
    await this.#instance?.[Symbol.asyncDispose]();
    await this.#model?.[Symbol.asyncDispose]();
    await this.#backend?.[Symbol.asyncDispose]();
    return {};
  }
}
