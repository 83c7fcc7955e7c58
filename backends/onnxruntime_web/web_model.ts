import { ServerError } from "../../proto/status.ts";
import type { CallGate } from "../../ffi/call_gate.ts";
import type { BackendModel, InstancePlacement, ModelInstance } from "../backend.ts";
import type { SessionKeeper } from "./session_keeper.ts";
import { WebInstance, type WebInstanceParts } from "./web_instance.ts";
import type { WebSession } from "./web_session.ts";
import type { SessionRequest } from "./worker_protocol.ts";

/** What a model is made of. */
export interface WebModelParts extends Omit<WebInstanceParts, "openSession" | "gate"> {
  readonly openSession: (provider: SessionRequest["provider"]) => Promise<WebSession>;
  /** The queue of a GPU. */
  readonly gateOf: (deviceId: number) => CallGate;
  /** Holds the session that told the model's signature, for the first instance on a CPU. */
  readonly spare: SessionKeeper;
}

/** One loaded ONNX model: each of its instances has a session of its own. */
export class WebModel implements BackendModel {
  readonly #parts: WebModelParts;

  constructor(parts: WebModelParts) {
    this.#parts = parts;
  }

  async createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    const { openSession, gateOf, spare, ...parts } = this.#parts;
    const isGpu = placement.kind === "KIND_GPU";
    if (isGpu && placement.device !== "webgpu") {
      throw new ServerError(
        "UNSUPPORTED",
        `instance '${placement.name}' of model '${parts.name}' cannot run on a CUDA GPU: ` +
          "onnxruntime-web runs on CPUs and through WebGPU",
      );
    }
    const provider = isGpu ? "webgpu" : "wasm";
    const open = () => openSession(provider);
    const gate = isGpu ? gateOf(placement.deviceId) : undefined;
    const session = (isGpu ? undefined : spare.take()) ?? await open();
    return new WebInstance({ ...parts, openSession: open, gate }, placement, session);
  }

  [Symbol.asyncDispose](): Promise<void> {
    this.#parts.spare[Symbol.dispose]();
    return Promise.resolve();
  }
}
