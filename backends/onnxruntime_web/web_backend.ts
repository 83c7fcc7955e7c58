import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { type CallGate, createCallGate } from "../../ffi/call_gate.ts";
import {
  type Backend,
  type BackendContext,
  type BackendModel,
  CPU_OFFER,
  type Devices,
  type KindOffer,
  type ModelSource,
} from "../backend.ts";
import { completeConfig, isComplete } from "../onnx_auto_complete.ts";
import { brokenFileHint, findModelFile } from "../onnx_model_file.ts";
import { createRunPlan } from "../onnx_run_plan.ts";
import { integerSetting } from "../onnx_setting_values.ts";
import { checkSignature } from "../onnx_signature_check.ts";
import { SessionKeeper } from "./session_keeper.ts";
import { readSessionRequest } from "./session_request.ts";
import { WebModel } from "./web_model.ts";
import { type OpenOptions, WebSession } from "./web_session.ts";
import type { SessionRequest } from "./worker_protocol.ts";

/** The runtime's words for a file that holds no model. */
const NO_MODEL = /Protobuf parsing failed|ModelProto does not have a graph|No graph was found/i;
/** Each load compiles the runtime and holds the model twice for a moment. */
const MAX_LOADS_IN_FLIGHT = 2;

/** ONNX models through onnxruntime-web: WebAssembly on CPUs, and WebGPU (native-abi.md §2.6). */
export class OnnxWebBackend implements Backend {
  readonly name: string;
  /** An instance has a Worker with a model of its own: one is enough where nobody asks for more. */
  readonly preference = { kind: "KIND_CPU", count: 1 } as const;
  readonly #context: BackendContext;
  readonly #prepared = new Map<ModelConfig, SessionKeeper>();
  readonly #gates = new Map<number, CallGate>();
  readonly #loadGate = createCallGate(MAX_LOADS_IN_FLIGHT);
  readonly #options: OpenOptions;
  #isVersionTold = false;

  constructor(context: BackendContext, name = "onnxruntime_web", options: OpenOptions = {}) {
    this.#context = context;
    this.name = name;
    this.#options = options;
  }

  async kinds(devices: Devices): Promise<readonly KindOffer[]> {
    const { adapters, reasons } = await devices.webGpuAdapters();
    const own = adapters.filter(({ source }) => source === "navigator.gpu");
    const offer = { kind: "KIND_GPU", device: "webgpu" } as const;
    if (own.length === 0) {
      const refusal = reasons["navigator.gpu"] ?? "navigator.gpu has no adapter";
      return [{ ...offer, deviceIds: [], refusal }, CPU_OFFER];
    }
    // Which adapter it takes is the runtime's choice: there is one device.
    const gpu = { ...offer, deviceIds: [0] };
    // An adapter that runs on the CPU is slower than the CPU: only for those who ask for it.
    return own.every(({ isSoftware }) => isSoftware) ? [CPU_OFFER, gpu] : [gpu, CPU_OFFER];
  }

  async autoComplete(source: ModelSource): Promise<void> {
    const { config } = source;
    if (isComplete(config)) return;
    const defaultMaxBatchSize = integerSetting(this.#context.settings, "default-max-batch-size");
    const session = await this.#open(source);
    try {
      const modelName = source.name;
      completeConfig(config, session.signature, { modelName, defaultMaxBatchSize });
    } catch (error) {
      session[Symbol.dispose]();
      throw error;
    }
    this.#prepared.get(config)?.[Symbol.dispose]();
    this.#prepared.set(config, new SessionKeeper(session, () => this.#prepared.delete(config)));
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    const { now, log, countBatchRetry } = this.#context;
    const request = await this.#readRequest(source);
    const prepared = this.#prepared.get(source.config)?.take();
    this.#prepared.delete(source.config);
    const session = prepared ?? await this.#load({ ...request, provider: "wasm" });
    try {
      const { signature } = session;
      checkSignature(source, signature);
      return new WebModel({
        name: source.name,
        plan: createRunPlan(source.config, signature),
        requiredInputCount: signature.inputs.length,
        now,
        log,
        countBatchRetry: () => countBatchRetry(source.name, source.version),
        openSession: (provider) => this.#load({ ...request, provider }),
        gateOf: (deviceId) => this.#gateOf(deviceId),
        spare: new SessionKeeper(session),
      });
    } catch (error) {
      session[Symbol.dispose]();
      throw error;
    }
  }

  async #open(source: ModelSource): Promise<WebSession> {
    const request = await this.#readRequest(source);
    return await this.#load({ ...request, provider: "wasm" });
  }

  async #readRequest(source: ModelSource): Promise<Omit<SessionRequest, "provider">> {
    const path = await findModelFile(source);
    return await readSessionRequest(source, { path, settings: this.#context.settings });
  }

  async #load(request: SessionRequest): Promise<WebSession> {
    await this.#loadGate.enter();
    try {
      const session = await WebSession.open(request, this.#options);
      this.#tellVersion(session);
      return session;
    } catch (error) {
      const { code, message } = ServerError.from(error);
      const hint = NO_MODEL.test(message) ? await brokenFileHint(request.path) : "";
      const text = hint === "" ? message : message.replace(/\.$/, "") + hint;
      throw new ServerError(code, text, { cause: error });
    } finally {
      this.#loadGate.leave();
    }
  }

  #tellVersion({ version }: WebSession): void {
    if (this.#isVersionTold) return;
    this.#isVersionTold = true;
    this.#context.log.info(`ONNX Runtime ${version} from npm package onnxruntime-web`);
  }

  #gateOf(deviceId: number): CallGate {
    const gate = this.#gates.get(deviceId) ?? createCallGate(1);
    this.#gates.set(deviceId, gate);
    return gate;
  }

  [Symbol.asyncDispose](): Promise<void> {
    for (const keeper of this.#prepared.values()) keeper[Symbol.dispose]();
    this.#prepared.clear();
    return Promise.resolve();
  }
}
