import { ServerError } from "../../proto/status.ts";
import type { ModelHost } from "../backend.ts";
import type { HostMetrics } from "./host_metrics.ts";
import { ModelCall, type ModelCallParts } from "./model_call.ts";
import { codeNumber } from "./result_wire.ts";
import type { Frame } from "../process/frame.ts";
import { FRAME } from "./stub_wire.ts";
import { type PeerSlot, readBytes } from "../process/tensor_wire.ts";

/** Calls of one connection that may run at the same time. */
const CALL_COUNT_MAX = 4096;

/** What calls of one connection are answered with. */
export interface HostCallsParts extends ModelCallParts {
  readonly metrics: HostMetrics;
}

type Json = Frame["json"];

/** What a process asks of the server on one connection: other models, model control, metrics. */
export class HostCalls {
  readonly #parts: HostCallsParts;
  readonly #calls = new Map<number, ModelCall>();
  #controlCount = 0;

  constructor(parts: HostCallsParts) {
    this.#parts = parts;
  }

  /**
   * Takes a frame if it is one of a call.
   * @throws RangeError, SyntaxError for what cannot be; the process is broken then.
   */
  take(frame: Frame): boolean {
    switch (frame.kind) {
      case FRAME.call:
        this.#call(frame);
        return true;
      case FRAME.callCancel:
        this.#calls.get(frame.id)?.cancel();
        return true;
      case FRAME.callCredit:
        this.#calls.get(frame.id)?.credit(readCount(frame.json.n));
        return true;
      default:
        return false;
    }
  }

  /** The connection has ended: calls are given up. */
  close(): void {
    for (const call of this.#calls.values()) call.close();
    this.#calls.clear();
  }

  #call(frame: Frame): void {
    const { m: method } = frame.json;
    if (method === "drop") return this.#parts.metrics.drop(frame.json);
    if (this.#calls.has(frame.id)) throw new RangeError(`Call ${frame.id} runs already`);
    if (this.#calls.size + this.#controlCount >= CALL_COUNT_MAX) {
      const message = `at most ${CALL_COUNT_MAX} calls of a model may run at the same time`;
      return this.#refuse(frame, new ServerError("UNAVAILABLE", message));
    }
    if (method === "infer" || method === "stream") return this.#callModel(frame);
    void this.#control(frame);
  }

  #callModel(frame: Frame): void {
    const call = new ModelCall(this.#parts, frame);
    const running = call.run(frame);
    this.#calls.set(frame.id, call);
    // A number may be used again when its call is over.
    void running.then(() => {
      if (this.#calls.get(frame.id) === call) this.#calls.delete(frame.id);
    });
  }

  #refuse({ id, json: { m: method } }: Frame, { code, message }: ServerError): void {
    const e = [codeNumber(code), message];
    if (method === "stream") this.#parts.port.send(FRAME.item, id, { r: { e }, l: true });
    else this.#parts.port.send(FRAME.reply, id, method === "infer" ? { e } : { error: e });
  }

  async #control(frame: Frame): Promise<void> {
    this.#controlCount++;
    try {
      const value = this.#answer(frame);
      const v = value instanceof Promise ? await value : value;
      this.#parts.port.send(FRAME.reply, frame.id, { v: v ?? null });
    } catch (reason) {
      this.#refuse(frame, ServerError.from(reason));
    } finally {
      this.#controlCount--;
    }
  }

  #answer({ json, payload }: Frame): unknown {
    const { host, metrics } = this.#parts;
    switch (json.m) {
      case "ready":
        return host.isModelReady(readText(json, "model"), readText(json, "version"));
      case "load":
        return this.#load(host, json, payload);
      case "unload": {
        const unloadDependents = json.dependents === true;
        return host.unloadModel(readText(json, "model"), { unloadDependents });
      }
      case "family":
        return metrics.openFamily(json);
      case "metric":
        return metrics.openMetric(json);
      case "increment":
      case "set":
      case "observe":
        return metrics.change(json.m, json);
      case "value":
        return travellingNumber(metrics.value(json));
      default:
        throw new ServerError("UNSUPPORTED", `unknown call '${String(json.m)}'`);
    }
  }

  /** Files are copied: the repository keeps them longer than the call lasts. */
  #load(host: ModelHost, json: Json, payload: Uint8Array): Promise<void> {
    const { memory, peer } = this.#parts;
    const parameters: Record<string, string | Uint8Array> = {};
    const slots: PeerSlot[] = [];
    const config = readText(json, "config");
    if (config !== "") parameters.config = config;
    try {
      for (const file of json.files as unknown[] ?? []) {
        const [path, segment, offset, byteSize] = file as readonly unknown[];
        const bytes = readBytes([segment, offset, byteSize], { payload, peer, slots });
        parameters[String(path)] = bytes.slice();
      }
    } finally {
      memory.giveBack(slots);
    }
    return host.loadModel(readText(json, "model"), parameters);
  }
}

function readText(json: Json, key: string): string {
  const value = json[key] ?? "";
  if (typeof value === "string") return value;
  throw new ServerError("INVALID_ARG", `Expected '${key}' of a call to be text`);
}

function readCount(value: unknown): number {
  if (Number.isSafeInteger(value) && (value as number) >= 0) return value as number;
  throw new RangeError(`Expected a number of items, got ${String(value)}`);
}

/** What JSON has no numbers for goes as text (wire.md). */
function travellingNumber(value: number): number | string {
  return Number.isFinite(value) ? value : String(value);
}
