import { create } from "@bufbuild/protobuf";
import { ModelStatisticsSchema } from "../../proto/gen/grpc_service_pb.ts";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import type { InferRequest, InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type {
  InferenceApi,
  InferOptions,
  ModelMetadata,
  RequestTrace,
  ResponseReceiver,
  SharedMemoryKind,
  SharedMemoryRegion,
} from "../core/inference_api.ts";
import { createLogControl } from "../core/log_control.ts";
import type { LogSettingChange, LogSettingValues } from "../core/options_frontend.ts";
import type { ShownTraceSetting, TraceChange } from "../core/options_trace.ts";

/** A request that waits for the test to settle it. */
export interface HeldRequest {
  readonly request: InferRequest;
  readonly options: InferOptions;
  answer(): void;
  fail(error: ServerError): void;
}

/** A request of a decoupled model, whose responses the test sends. */
export interface HeldStream {
  readonly request: InferRequest;
  readonly options: InferOptions;
  readonly receive: ResponseReceiver;
  /** The core is done with the request. */
  settle(): void;
  fail(error: ServerError): void;
}

/** The response of an identity model. */
export function echoResponse(request: InferRequest): InferResponse {
  return {
    modelName: request.modelName,
    modelVersion: request.modelVersion === "" ? "1" : request.modelVersion,
    id: request.id,
    parameters: {},
    outputs: request.inputs.map((input) => ({ ...input, name: `OUT_${input.name}` })),
  };
}

/** A facade with one identity model `echo` and nothing behind it, for tests. */
export class MemoryApi implements InferenceApi {
  live = true;
  ready = true;
  exiting = false;
  /** What the model says itself; undefined = it has no say. */
  modelReady: Promise<boolean> | undefined;
  /** With true, requests wait in `held`. */
  hold = false;
  readonly held: HeldRequest[] = [];
  /** Requests that came by `inferStream` while `decoupled`. */
  readonly streams: HeldStream[] = [];
  readonly requests: InferRequest[] = [];
  readonly loaded: [string, Readonly<Record<string, string | Uint8Array>>][] = [];
  readonly unloaded: [string, boolean][] = [];
  /** Responses that were handed out and not given back. */
  openResponses = 0;
  decoupled = false;
  readonly traceChanges: [string, TraceChange][] = [];
  /** The trace of every request. */
  trace: RequestTrace | undefined;
  readonly log = createLogControl();
  readonly regions: SharedMemoryRegion[] = [];
  readonly rawHandles: Uint8Array[] = [];
  readonly unregistered: [SharedMemoryKind, string][] = [];

  isLive = () => this.live;
  isReady = () => this.ready;
  isExiting = () => this.exiting;

  #check(name: string): void {
    if (name === "echo") return;
    throw new ServerError("NOT_FOUND", `Request for unknown model: '${name}' is not found`);
  }

  versionOfLabel(): string | undefined {
    return undefined;
  }

  isModelReady(name: string, _version: string): boolean | Promise<boolean> {
    this.#check(name);
    return this.modelReady ?? this.ready;
  }

  serverMetadata = () => ({ name: "triton", version: "2.51.0", extensions: ["statistics"] });

  modelMetadata(name: string, version: string): ModelMetadata {
    this.#check(name);
    return {
      name,
      versions: [version === "" ? "1" : version],
      platform: "identity",
      inputs: [{ name: "X", datatype: "FP32", shape: [-1, 4] }],
      outputs: [{ name: "OUT_X", datatype: "FP32", shape: [-1, 4] }],
      maxBatchSize: 8,
      decoupled: this.decoupled,
    };
  }

  isDecoupled(name: string, version: string): boolean {
    return this.modelMetadata(name, version).decoupled;
  }

  modelConfig(name: string, _version: string) {
    this.#check(name);
    return create(ModelConfigSchema, { name, maxBatchSize: 8 });
  }

  modelStatistics(name: string, version: string) {
    return [create(ModelStatisticsSchema, { name: name || "echo", version: version || "1" })];
  }

  repositoryIndex(readyOnly: boolean) {
    const all = [{ name: "echo", version: "1", state: "READY" as const }, { name: "other" }];
    return Promise.resolve(readyOnly ? all.slice(0, 1) : all);
  }

  infer(request: InferRequest, options: InferOptions = {}): Promise<InferResponse> {
    this.requests.push(request);
    try {
      this.#check(request.modelName);
    } catch (error) {
      return Promise.reject(error);
    }
    const answer = () => {
      this.openResponses++;
      return echoResponse(request);
    };
    if (!this.hold) return Promise.resolve(answer());
    return new Promise((resolve, reject) => {
      this.held.push({ request, options, answer: () => resolve(answer()), fail: reject });
    });
  }

  async inferStream(
    request: InferRequest,
    receive: ResponseReceiver,
    options: InferOptions = {},
  ): Promise<void> {
    if (this.decoupled) {
      this.requests.push(request);
      return new Promise((settle, fail) => {
        this.streams.push({ request, options, receive, settle, fail });
      });
    }
    await receive({ response: await this.infer(request, options), isFinal: true });
  }

  traceTime = () => this.trace === undefined ? 0 : 1;
  startTrace = () => this.trace;

  traceSetting(model: string, change?: TraceChange): ShownTraceSetting {
    if (model !== "" && model !== "echo") {
      throw new ServerError("INVALID_ARG", `Request for unknown model : ${model}`);
    }
    if (change !== undefined) this.traceChanges.push([model, change]);
    return [["trace_level", ["OFF"]], ["trace_rate", ["1000"]]];
  }

  logSettings(change: LogSettingChange = {}): LogSettingValues {
    return this.log.update(change);
  }

  releaseResponse(_response: InferResponse): void {
    if (--this.openResponses < 0) throw new TypeError("Response was released twice");
  }

  loadModel(name: string, parameters: Readonly<Record<string, string | Uint8Array>>) {
    this.loaded.push([name, parameters]);
    return Promise.resolve();
  }

  unloadModel(name: string, options: { readonly unloadDependents: boolean }) {
    this.unloaded.push([name, options.unloadDependents]);
    return Promise.resolve();
  }

  checkSharedMemoryAllowed(): void {}

  sharedMemoryStatus(kind: SharedMemoryKind, name: string): SharedMemoryRegion[] {
    return this.regions.filter((region) =>
      region.kind === kind && (name || region.name) === region.name
    );
  }

  registerSystemSharedMemory(region: SharedMemoryRegion) {
    this.regions.push(region);
    return Promise.resolve();
  }

  registerCudaSharedMemory(region: SharedMemoryRegion, rawHandle: Uint8Array) {
    this.regions.push(region);
    this.rawHandles.push(rawHandle);
    return Promise.resolve();
  }

  unregisterSharedMemory(kind: SharedMemoryKind, name: string): void {
    this.unregistered.push([kind, name]);
  }
}
