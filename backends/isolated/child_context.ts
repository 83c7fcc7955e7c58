import { ServerError } from "../../proto/status.ts";
import type {
  BackendContext,
  BackendLog,
  Devices,
  GpuList,
  GpuMemory,
  LogPlace,
  ModelHost,
  WebGpuList,
} from "../backend.ts";
import type { FramePort } from "../process/stub_link.ts";
import { FRAME, type Json } from "./isolated_wire.ts";

/** Only the instance itself is held up, and the word that a client has gone. */
const BLOCKING_LIMIT_MS = 5;

/** What the server tells a process of itself. */
export interface ContextOrder {
  readonly settings: readonly (readonly [string, string])[];
  readonly verbose: number;
  readonly devices: boolean;
}

/** What a backend gets in a process of its own: everything leads to the server. */
export class ChildContext {
  readonly context: BackendContext;
  readonly #port: FramePort;
  readonly #calls = new Map<number, (value: unknown) => void>();
  #lastCall = 0;
  #verboseLevel: number;

  constructor(port: FramePort, { settings, verbose, devices }: ContextOrder) {
    this.#port = port;
    this.#verboseLevel = verbose;
    this.context = {
      settings: new Map(settings),
      log: this.#createLog(),
      now: () => performance.now(),
      countBatchRetry: () => port.send(FRAME.batchRetry, 0),
      host: HOST,
      blockingLimitMs: BLOCKING_LIMIT_MS,
      ...(devices ? { devices: this.#createDevices() } : {}),
    };
  }

  /** LOG_LEVEL. */
  setVerboseLevel(level: number): void {
    this.#verboseLevel = level;
  }

  /** REPLY. */
  answered(id: number, { v }: Json): void {
    this.#calls.get(id)?.(v);
    this.#calls.delete(id);
  }

  #call(body: Record<string, unknown>): Promise<unknown> {
    const id = ++this.#lastCall;
    const { promise, resolve } = Promise.withResolvers<unknown>();
    this.#calls.set(id, resolve);
    this.#port.send(FRAME.call, id, body);
    return promise;
  }

  #createDevices(): Devices {
    return {
      gpus: () => this.#call({ m: "gpus" }) as Promise<GpuList>,
      webGpuAdapters: () => this.#call({ m: "webGpuAdapters" }) as Promise<WebGpuList>,
      gpuMemory: async (gpu) => {
        const memory = await this.#call({ m: "gpuMemory", gpu });
        return memory === null ? undefined : memory as GpuMemory;
      },
    };
  }

  #createLog(): BackendLog {
    const write = (level: string, message: string, place?: LogPlace, verbose?: number): void => {
      const where = place === undefined ? {} : { s: place.file, n: place.line };
      const more = verbose === undefined ? {} : { v: verbose };
      this.#port.send(FRAME.log, 0, { l: level, m: message, ...where, ...more });
    };
    return {
      info: (message, place) => write("INFO", message, place),
      warning: (message, place) => write("WARNING", message, place),
      error: (message, place) => write("ERROR", message, place),
      verbose: (level, message, place) => {
        if (level <= this.#verboseLevel) write("VERBOSE", message, place, level);
      },
      isVerbose: (level) => level <= this.#verboseLevel,
    };
  }
}

function refuse(): never {
  throw new ServerError(
    "UNSUPPORTED",
    "a model in a process of its own (isolation=process) cannot call other models or the server",
  );
}

/** Backends whose models call others are not isolated, so nobody asks. */
const HOST: ModelHost = {
  // deno-lint-ignore require-await
  infer: async () => refuse(),
  // deno-lint-ignore require-await
  isModelReady: async () => refuse(),
  // deno-lint-ignore require-await
  loadModel: async () => refuse(),
  // deno-lint-ignore require-await
  unloadModel: async () => refuse(),
  openMetricFamily: refuse,
};
