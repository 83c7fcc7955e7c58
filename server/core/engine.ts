import type { Devices } from "../../backends/backend.ts";
import type { ModelStatistics } from "../../proto/gen/grpc_service_pb.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { InferRequest, InferResponse } from "../../proto/infer.ts";
import { checkModelName } from "../../proto/model_name.ts";
import { ServerError } from "../../proto/status.ts";
import { BackendTable, type OpenBackend } from "./backend_table.ts";
import type { Clock } from "./clock.ts";
import type { CustomMetrics } from "./custom_metrics.ts";
import type {
  ControlOptions,
  CudaSharedMemoryRegion,
  InferenceApi,
  InferOptions,
  ModelIndexEntry,
  ModelMetadata,
  RequestTrace,
  ResponseReceiver,
  ServerMetadata,
  SharedMemoryKind,
  SystemSharedMemoryRegion,
} from "./inference_api.ts";
import type { CompleteConfig } from "./device_loading.ts";
import { checkEnsembleModels } from "./ensemble/ensemble_loader.ts";
import { type Log, moduleLog } from "./log.ts";
import { createLogControl, type LogControl } from "./log_control.ts";
import type { Model } from "./model.ts";
import type { MetricsSnapshot } from "./metrics_snapshot.ts";
import { checkControlMode, readOverride } from "./model_control.ts";
import { loadHeld } from "./held_model.ts";
import { ModelLifecycle } from "./model_lifecycle.ts";
import { ModelRegistry } from "./model_registry.ts";
import { readStatistics } from "./model_statistics.ts";
import type { WatchedRepository } from "./model_repositories.ts";
import type { ModelRepository } from "./model_repository.ts";
import { releaseResponse } from "./model_response.ts";
import type { ServerOptions } from "./options.ts";
import type { LogSettingChange, LogSettingValues } from "./options_frontend.ts";
import type { ShownTraceSetting, TraceChange } from "./options_trace.ts";
import { mayFallBack } from "./instance_kinds.ts";
import { prepareUpdate } from "./instance_update.ts";
import { RepositoryControl } from "./repository_control.ts";
import { RateLimiter } from "./scheduler/rate_limiter.ts";
import { createServerMetadata } from "./server_metadata.ts";
import {
  createSharedMemoryTable,
  type RegionOpener,
  type SharedMemoryTable,
} from "./shared_memory.ts";
import type { ResponseCache } from "./response_cache.ts";
import { shutDown } from "./shutdown.ts";
import type { StartResult } from "./start.ts";
import type { StatisticsOptions } from "./statistics.ts";
import type { TemporaryFolders } from "./temporary_folders.ts";
import { describeTensors } from "./tensor_rules.ts";
import type { FieldLookup } from "./trace_context.ts";
import type { Tracer } from "./tracer.ts";
import { loadVersion, type VersionLoaderParts } from "./version_loader.ts";

/** What the engine is made of; tests pass fakes. */
export interface EngineParts {
  readonly clock: Clock;
  readonly log: Log;
  /** One that can be looked at again and again, for control mode POLL. */
  readonly repository: ModelRepository | WatchedRepository;
  /** Calls back when something in the repositories may have changed. */
  readonly watch?: ((onChange: () => void) => Disposable) | undefined;
  readonly completeConfig: CompleteConfig;
  /** The devices of the machine; absent = nothing is known of any but the CPU. */
  readonly devices?: Devices | undefined;
  readonly openBackend: OpenBackend;
  readonly backendNames: readonly string[];
  readonly statistics: StatisticsOptions;
  /** Of models that enable it; absent = there is none. */
  readonly responseCache?: ResponseCache | undefined;
  /** Metrics of models' own; absent = there are none. */
  readonly customMetrics?: CustomMetrics | undefined;
  /** See `VersionLoaderParts.loadBatchStrategy`. */
  readonly loadBatchStrategy?: VersionLoaderParts["loadBatchStrategy"];
  /** `TRITONSERVER_DELAY_SCHEDULER`; 0 = off. */
  readonly delaySchedulerCount: number;
  /** `TRITONSERVER_BACKLOG_DELAY_SCHEDULER`; absent = off. */
  readonly backlogDelayCount?: number | undefined;
  /** Opens shared memory; absent = there is none. */
  readonly regionOpener?: RegionOpener | undefined;
  /** What the repository keeps of models beside their folders; removed at the end. */
  readonly temporaryFolders?: TemporaryFolders | undefined;
  /** Absent = nothing can be traced. */
  readonly tracer?: Tracer | undefined;
  /** The settings of `log`; absent = settings that change nothing. */
  readonly logControl?: LogControl | undefined;
}

type ServerState = "INITIALIZING" | "READY" | "FAILED" | "EXITING";

/** The serving engine behind the facade. */
export class Engine implements InferenceApi {
  readonly #options: ServerOptions;
  readonly #parts: EngineParts;
  readonly #log: Log;
  readonly #registry: ModelRegistry;
  readonly #backends: BackendTable;
  readonly #lifecycle: ModelLifecycle;
  readonly #control: RepositoryControl;
  readonly #metadata: ServerMetadata;
  readonly #releases = new WeakMap<InferResponse, () => void>();
  readonly #memory: SharedMemoryTable;
  readonly #logControl: LogControl;
  #state: ServerState = "INITIALIZING";
  #stopping: Promise<boolean> | undefined;

  constructor(options: ServerOptions, parts: EngineParts) {
    this.#options = options;
    this.#parts = parts;
    this.#log = moduleLog(parts.log, "engine.ts");
    this.#registry = new ModelRegistry(options.modelNamespacing);
    this.#metadata = createServerMetadata(options.id);
    this.#backends = new BackendTable(parts.openBackend);
    this.#memory = createSharedMemoryTable(options, parts.regionOpener);
    this.#logControl = parts.logControl ?? createLogControl();
    const { clock, repository } = parts;
    const loader = {
      ...parts,
      backends: this.#backends,
      registry: this.#registry,
      releases: this.#releases,
      backendDirectory: options.backendDirectory,
      modelLoadGpuLimits: options.modelLoadGpuLimits,
      rateLimiter: options.rateLimit === "off"
        ? undefined
        : new RateLimiter(options.rateLimitResources),
    };
    this.#lifecycle = new ModelLifecycle({
      registry: this.#registry,
      repository,
      loadVersion: (model, version) => loadHeld(model, () => loadVersion(model, version, loader)),
      prepareUpdate: async (model, source) => {
        const backend = (await this.#backends.open(source.config.backend))!;
        const settings = {
          backend,
          devices: parts.devices,
          mayFallBack: mayFallBack(options, backend.name),
          log: moduleLog(parts.log, "instance_update.ts"),
        };
        return await prepareUpdate(model, source, settings);
      },
      checkEnsemble: (model) => checkEnsembleModels(model, this.#registry),
      clock,
      log: moduleLog(parts.log, "model_lifecycle.ts"),
      threadCount: options.modelLoadThreadCount,
      retryCount: options.modelLoadRetryCount,
    });
    this.#control = new RepositoryControl({
      ...parts,
      options,
      registry: this.#registry,
      lifecycle: this.#lifecycle,
    });
  }

  isLive(): boolean {
    return this.#state === "READY" || this.#state === "EXITING";
  }

  isReady(): boolean {
    if (this.#state !== "READY") return false;
    return !this.#options.strictReadiness || this.#registry.isEveryModelReady();
  }

  isExiting(): boolean {
    return this.#state === "EXITING";
  }

  isModelReady(name: string, version: string): boolean | Promise<boolean> {
    if (this.#state !== "READY") throw notReady();
    return this.#registry.resolve(name, version).isReady();
  }

  serverMetadata(): ServerMetadata {
    return this.#metadata;
  }

  versionOfLabel(name: string, label: string): string | undefined {
    return this.#registry.versionOfLabel(name, label);
  }

  modelMetadata(name: string, version: string): ModelMetadata {
    const model = this.#registry.resolve(name, version);
    const { config, rules } = model;
    const versions = version === ""
      ? this.#registry.find(name)!.ready().map(({ versionText }) => versionText)
      : [model.versionText];
    return {
      name,
      versions,
      platform: config.platform === "" ? config.backend : config.platform,
      inputs: describeTensors(rules.inputs, config.maxBatchSize),
      outputs: describeTensors(rules.outputs, config.maxBatchSize),
      maxBatchSize: config.maxBatchSize,
      decoupled: config.modelTransactionPolicy?.decoupled ?? false,
    };
  }

  isDecoupled(name: string, version: string): boolean {
    return this.#registry.resolve(name, version).config.modelTransactionPolicy?.decoupled ?? false;
  }

  modelConfig(name: string, version: string): ModelConfig {
    return this.#registry.resolve(name, version).config;
  }

  modelStatistics(name: string, version: string): ModelStatistics[] {
    return readStatistics(this.#registry, name, version);
  }

  repositoryIndex(readyOnly: boolean): Promise<ModelIndexEntry[]> {
    return this.#control.index(readyOnly);
  }

  infer(request: InferRequest, options?: InferOptions): Promise<InferResponse> {
    try {
      const model = this.#findModel(request);
      const bound = this.#memory.bind(request, model);
      if (bound === undefined) return model.infer(request, options);
      const { targets } = bound;
      return bound.settle((own) => model.infer(own, { ...options, targets }), this.#releases);
    } catch (error) {
      return Promise.reject(this.#refuse(request, error));
    }
  }

  inferStream(
    request: InferRequest,
    receive: ResponseReceiver,
    options?: InferOptions,
  ): Promise<void> {
    try {
      const model = this.#findModel(request);
      const bound = this.#memory.bind(request, model);
      if (bound === undefined) return model.inferStream(request, receive, options);
      const receiver = bound.receive(receive, this.#releases);
      const { targets } = bound;
      return bound.hold((own) => model.inferStream(own, receiver, { ...options, targets }));
    } catch (error) {
      return Promise.reject(this.#refuse(request, error));
    }
  }

  #findModel({ modelName, modelVersion }: InferRequest): Model {
    if (this.#state !== "READY" && this.#state !== "EXITING") throw notReady();
    return this.#registry.resolve(modelName, modelVersion);
  }

  #refuse({ modelName }: InferRequest, error: unknown): ServerError {
    const refusal = ServerError.refusal(error);
    this.#log.verbose(1, `request for model '${modelName}' refused: ${refusal.toReason()}`);
    return refusal;
  }

  traceTime(): number {
    return this.#parts.tracer?.isActive ? this.#parts.clock.now() : 0;
  }

  startTrace(
    { name, version }: { readonly name: string; readonly version: string },
    fields: FieldLookup,
  ): RequestTrace | undefined {
    const { tracer } = this.#parts;
    if (!tracer?.isActive) return undefined;
    // Requests for what is not there are not traced (http.md §9.1).
    return this.#hasReady(name, version) ? tracer.start(name, fields) : undefined;
  }

  traceSetting(model: string, change: TraceChange = {}): ShownTraceSetting {
    const { tracer } = this.#parts;
    if (tracer === undefined) throw new ServerError("UNSUPPORTED", "tracing is not available");
    if (model !== "" && !this.#hasReady(model, "")) {
      throw new ServerError("INVALID_ARG", `Request for unknown model : ${model}`);
    }
    return tracer.update(model, change);
  }

  #hasReady(name: string, version: string): boolean {
    try {
      return this.#registry.resolve(name, version) !== undefined;
    } catch {
      return false;
    }
  }

  logSettings(change: LogSettingChange = {}): LogSettingValues {
    return this.#logControl.update(change);
  }

  releaseResponse(response: InferResponse): void {
    releaseResponse(this.#releases, response);
  }

  async loadModel(
    name: string,
    parameters: Readonly<Record<string, string | Uint8Array>>,
    { isCall }: ControlOptions = {},
  ): Promise<void> {
    checkControlMode(this.#options.modelControlMode);
    if (this.#state !== "READY") throw notReady();
    checkModelName(name);
    await this.#control.load(name, { override: readOverride(name, parameters), isCall });
  }

  async unloadModel(
    name: string,
    options: ControlOptions & { readonly unloadDependents: boolean },
  ): Promise<void> {
    checkControlMode(this.#options.modelControlMode);
    if (this.#state !== "READY") throw notReady();
    await this.#control.unload(name, options);
  }

  checkSharedMemoryAllowed(): void {
    this.#memory.checkAllowed();
  }

  sharedMemoryStatus(kind: SharedMemoryKind, name: string) {
    return this.#memory.status(kind, name);
  }

  registerSystemSharedMemory(region: SystemSharedMemoryRegion): Promise<void> {
    return this.#memory.registerSystem(region);
  }

  registerCudaSharedMemory(region: CudaSharedMemoryRegion, rawHandle: Uint8Array): Promise<void> {
    return this.#memory.registerCuda(region, rawHandle);
  }

  unregisterSharedMemory(kind: SharedMemoryKind, name: string): void {
    this.#memory.unregister(kind, name);
  }

  /** Everything counted for the loaded versions, in one step. */
  metrics(): MetricsSnapshot {
    const models = this.#registry.entries().flatMap((entry) => entry.loaded());
    const cache = this.#parts.responseCache?.snapshot();
    const custom = this.#parts.customMetrics?.snapshot();
    return {
      versions: models.map(({ statistics }) => statistics.snapshot()),
      ...(cache === undefined ? {} : { cache }),
      ...(custom === undefined ? {} : { custom }),
    };
  }

  /** See `VersionStatistics.countBatchRetry`; a version that is being loaded or is gone is ignored. */
  countBatchRetry(name: string, version: number): void {
    const [entry] = this.#registry.findAll(name);
    entry?.version(version)?.model?.statistics.countBatchRetry();
  }

  /** Loads the models of the start; never rejects. */
  async start(): Promise<StartResult> {
    try {
      if (this.#state === "EXITING") throw new ServerError("UNAVAILABLE", "Server exiting");
      const { models, isComplete } = await this.#control.start();
      if (this.#state === "INITIALIZING") this.#state = "READY";
      return {
        ok: isComplete,
        error: isComplete ? undefined : new ServerError("INTERNAL", "failed to load all models"),
        models,
      };
    } catch (error) {
      if (this.#state === "INITIALIZING") this.#state = "FAILED";
      return { ok: false, error: ServerError.from(error), models: [] };
    }
  }

  /** Refuses new requests, finishes those in flight, unloads everything; true when that was done in time. */
  stop(timeoutMs: number): Promise<boolean> {
    this.#state = "EXITING";
    void this.#control.stop();
    this.#stopping ??= shutDown({
      registry: this.#registry,
      lifecycle: this.#lifecycle,
      backends: this.#backends,
      clock: this.#parts.clock,
      log: moduleLog(this.#parts.log, "shutdown.ts"),
      timeoutMs,
    }).finally(() => this.#memory.close())
      .finally(() => this.#removeFolders());
    return this.#stopping;
  }

  async #removeFolders(): Promise<void> {
    await this.#parts.temporaryFolders?.close().catch((reason) => {
      const { message } = ServerError.from(reason);
      this.#log.error(`failed to remove temporary directories of models: ${message}`);
    });
  }
}

function notReady(): ServerError {
  return new ServerError("UNAVAILABLE", "Server not ready");
}
