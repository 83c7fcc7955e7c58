import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
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
import type { Headers, HttpRequest, HttpResponse } from "../transport/transport.ts";

/** A facade for tests: identity models in memory. */
export class InMemoryFacade implements InferenceApi {
  exiting = false;
  /** Of the models it knows. */
  modelReady: boolean | Promise<boolean> = true;
  allowsSharedMemory = true;
  readonly regions: SharedMemoryRegion[] = [];
  readonly rawHandles: Uint8Array[] = [];
  readonly unregistered: [SharedMemoryKind, string][] = [];
  readonly requests: InferRequest[] = [];
  readonly released: InferResponse[] = [];
  readonly loaded: [string, Readonly<Record<string, string | Uint8Array>>][] = [];
  readonly traceChanges: [string, TraceChange][] = [];
  /** The trace of every request. */
  trace: RequestTrace | undefined;
  readonly log = createLogControl();
  onInfer: ((request: InferRequest, options?: InferOptions) => Promise<InferResponse>) | undefined;

  onStream: InferenceApi["inferStream"] | undefined;

  constructor(readonly models: readonly ModelMetadata[]) {}

  isLive(): boolean {
    return true;
  }
  isReady(): boolean {
    return true;
  }
  isExiting(): boolean {
    return this.exiting;
  }
  versionOfLabel(_name: string, label: string): string | undefined {
    return label === "stable" ? "1" : undefined;
  }

  isModelReady(name: string, version: string): boolean | Promise<boolean> {
    this.modelMetadata(name, version);
    return this.modelReady;
  }
  serverMetadata() {
    return { name: "triton", version: "1", extensions: ["binary_tensor_data"] };
  }
  modelMetadata(name: string, version: string): ModelMetadata {
    const model = this.models.find((candidate) => candidate.name === name);
    if (model === undefined) {
      throw new ServerError("NOT_FOUND", `Request for unknown model: '${name}' is not found`);
    }
    if (version !== "" && !model.versions.includes(version)) {
      throw new ServerError(
        "NOT_FOUND",
        `Request for unknown model: '${name}' version ${version} is not found`,
      );
    }
    return model;
  }
  isDecoupled(name: string, version: string): boolean {
    return this.modelMetadata(name, version).decoupled;
  }
  modelConfig(): ModelConfig {
    throw new ServerError("UNSUPPORTED", "no configuration in memory");
  }
  modelStatistics() {
    return [];
  }
  repositoryIndex(readyOnly: boolean) {
    const ready = [{ name: "echo", version: "1", state: "READY" as const, reason: "" }];
    return Promise.resolve(readyOnly ? ready : [...ready, { name: "never_loaded" }]);
  }
  infer(request: InferRequest, options?: InferOptions): Promise<InferResponse> {
    this.requests.push(request);
    if (this.onInfer !== undefined) return this.onInfer(request, options);
    const { modelName, id, inputs } = request;
    this.modelMetadata(modelName, request.modelVersion);
    const outputs = inputs.map(({ name, datatype, shape, data }) => ({
      name: name.replace("IN", "OUT"),
      datatype,
      shape,
      data,
    }));
    return Promise.resolve({ modelName, modelVersion: "1", id, parameters: {}, outputs });
  }
  async inferStream(
    request: InferRequest,
    receive: ResponseReceiver,
    options: InferOptions = {},
  ): Promise<void> {
    if (this.onStream !== undefined) return this.onStream(request, receive, options);
    await receive({ response: await this.infer(request), isFinal: true });
  }
  traceTime(): number {
    return this.trace === undefined ? 0 : 1;
  }
  startTrace() {
    return this.trace;
  }
  traceSetting(model: string, change?: TraceChange): ShownTraceSetting {
    if (model !== "") this.modelMetadata(model, "");
    if (change !== undefined) this.traceChanges.push([model, change]);
    return [["trace_level", ["OFF"]], ["trace_rate", ["1000"]]];
  }
  logSettings(change: LogSettingChange = {}): LogSettingValues {
    return this.log.update(change);
  }
  releaseResponse(response: InferResponse): void {
    this.released.push(response);
  }
  loadModel(
    name: string,
    parameters: Readonly<Record<string, string | Uint8Array>>,
  ): Promise<void> {
    this.loaded.push([name, parameters]);
    return Promise.resolve();
  }
  unloadModel(): Promise<void> {
    return Promise.resolve();
  }
  checkSharedMemoryAllowed(): void {
    if (this.allowsSharedMemory) return;
    throw new ServerError("UNSUPPORTED", "Client shared memory is disabled.");
  }
  sharedMemoryStatus(kind: SharedMemoryKind, name: string): SharedMemoryRegion[] {
    return this.regions.filter((region) =>
      region.kind === kind && (name || region.name) === region.name
    );
  }
  registerSystemSharedMemory(region: SharedMemoryRegion): Promise<void> {
    this.regions.push(region);
    return Promise.resolve();
  }
  registerCudaSharedMemory(region: SharedMemoryRegion, rawHandle: Uint8Array): Promise<void> {
    this.regions.push(region);
    this.rawHandles.push(rawHandle);
    return Promise.resolve();
  }
  unregisterSharedMemory(kind: SharedMemoryKind, name: string): void {
    this.unregistered.push([kind, name]);
  }
}

/** A model of {@linkcode InMemoryFacade}. */
export function memoryModel(name: string, change: Partial<ModelMetadata> = {}): ModelMetadata {
  const tensor = { datatype: "FP32", shape: [-1] } as const;
  return {
    name,
    versions: ["1"],
    platform: "identity",
    inputs: [{ name: "IN0", ...tensor }],
    outputs: [{ name: "OUT0", ...tensor }],
    maxBatchSize: 0,
    decoupled: false,
    ...change,
  };
}

/** A request as the transport would hand it over. */
export function memoryRequest(
  method: string,
  target: string,
  { headers = {}, body = "" }: {
    headers?: Record<string, string>;
    body?: string | Uint8Array;
  } = {},
): HttpRequest {
  const fields: Headers = {
    get: (name) => headers[name],
    entries: () => Object.entries(headers),
  };
  return {
    method,
    target,
    headers: fields,
    httpVersion: "1.1",
    body: typeof body === "string" ? new TextEncoder().encode(body) : body,
    signal: new AbortController().signal,
    arrivedMs: 0,
  };
}

/** The bytes of a response. */
export function responseBytes(response: HttpResponse): Uint8Array {
  const parts = (response.body ?? []) as readonly Uint8Array[];
  const bytes: number[] = [];
  for (const part of parts) for (const byte of part) bytes.push(byte);
  return Uint8Array.from(bytes);
}

/** The body of a response as text. */
export function responseText(response: HttpResponse): string {
  return new TextDecoder().decode(responseBytes(response));
}
