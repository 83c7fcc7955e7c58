import type { Backend } from "../../backends/backend.ts";
import type { ModelStatistics } from "../../proto/gen/grpc_service_pb.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { InferRequest, InferResponse } from "../../proto/infer.ts";
import { checkModelName } from "../../proto/model_name.ts";
import { ServerError } from "../../proto/status.ts";
import { BackendTable, type OpenBackend } from "./backend_table.ts";
import type { Clock } from "./clock.ts";
import type { ConfigSource } from "./config_complete.ts";
import type {
  CudaSharedMemoryRegion,
  InferenceApi,
  InferOptions,
  ModelIndexEntry,
  ModelMetadata,
  ResponseReceiver,
  ServerMetadata,
  SharedMemoryKind,
  SystemSharedMemoryRegion,
} from "./inference_api.ts";
import { checkEnsembleModels } from "./ensemble/ensemble_loader.ts";
import { type Log, moduleLog } from "./log.ts";
import type { Model } from "./model.ts";
import { checkControlMode, readOverride } from "./model_control.ts";
import { loadHeld } from "./held_model.ts";
import { ModelLifecycle } from "./model_lifecycle.ts";
import { ModelRegistry, parseVersion } from "./model_registry.ts";
import type { ModelRepository } from "./model_repository.ts";
import { releaseResponse } from "./model_response.ts";
import type { ServerOptions } from "./options.ts";
import { RateLimiter } from "./scheduler/rate_limiter.ts";
import { createServerMetadata } from "./server_metadata.ts";
import {
  createSharedMemoryTable,
  type RegionOpener,
  type SharedMemoryTable,
} from "./shared_memory.ts";
import type { ResponseCache } from "./response_cache.ts";
import { shutDown } from "./shutdown.ts";
import { listStartedModels, startModelNames, type StartResult } from "./start.ts";
import type { MetricsSnapshot, StatisticsOptions } from "./statistics.ts";
import type { TemporaryFolders } from "./temporary_folders.ts";
import { describeTensors } from "./tensor_rules.ts";
import { loadVersion } from "./version_loader.ts";

/** What the engine is made of; tests pass fakes. */
export interface EngineParts {
  readonly clock: Clock;
  readonly log: Log;
  readonly repository: ModelRepository;
  readonly completeConfig: (source: ConfigSource, backend: Backend) => Promise<void>;
  readonly openBackend: OpenBackend;
  readonly backendNames: readonly string[];
  readonly statistics: StatisticsOptions;
  /** Of models that enable it; absent = there is none. */
  readonly responseCache?: ResponseCache | undefined;
  /** `TRITONSERVER_DELAY_SCHEDULER`; 0 = off. */
  readonly delaySchedulerCount: number;
  /** `TRITONSERVER_BACKLOG_DELAY_SCHEDULER`; absent = off. */
  readonly backlogDelayCount?: number | undefined;
  /** Opens shared memory; absent = there is none. */
  readonly regionOpener?: RegionOpener | undefined;
  /** What the repository keeps of models beside their folders; removed at the end. */
  readonly temporaryFolders?: TemporaryFolders | undefined;
}

type ServerState = "INITIALIZING" | "READY" | "FAILED" | "EXITING";

/** The serving engine behind the facade. */
export class Engine implements InferenceApi {
  readonly #options: ServerOptions;
  readonly #parts: EngineParts;
  readonly #log: Log;
  readonly #registry = new ModelRegistry();
  readonly #backends: BackendTable;
  readonly #lifecycle: ModelLifecycle;
  readonly #metadata: ServerMetadata;
  readonly #releases = new WeakMap<InferResponse, () => void>();
  readonly #memory: SharedMemoryTable;
  #state: ServerState = "INITIALIZING";
  #directories: readonly string[] = [];
  #stopping: Promise<boolean> | undefined;

  constructor(options: ServerOptions, parts: EngineParts) {
    this.#options = options;
    this.#parts = parts;
    this.#log = moduleLog(parts.log, "engine.ts");
    this.#metadata = createServerMetadata(options.id);
    this.#backends = new BackendTable(parts.openBackend);
    this.#memory = createSharedMemoryTable(options, parts.regionOpener);
    const { clock, repository } = parts;
    const loader = {
      ...parts,
      backends: this.#backends,
      registry: this.#registry,
      releases: this.#releases,
      rateLimiter: options.rateLimit === "off"
        ? undefined
        : new RateLimiter(options.rateLimitResources),
    };
    this.#lifecycle = new ModelLifecycle({
      registry: this.#registry,
      repository,
      loadVersion: (model, version) => loadHeld(model, () => loadVersion(model, version, loader)),
      checkEnsemble: (model) => checkEnsembleModels(model, this.#registry),
      clock,
      log: moduleLog(parts.log, "model_lifecycle.ts"),
      threadCount: options.modelLoadThreadCount,
      retryCount: options.modelLoadRetryCount,
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

  isModelReady(name: string, version: string): boolean {
    if (this.#state !== "READY") throw notReady();
    this.#registry.resolve(name, version);
    return true;
  }

  serverMetadata(): ServerMetadata {
    return this.#metadata;
  }

  modelMetadata(name: string, version: string): ModelMetadata {
    const model = this.#registry.resolve(name, version);
    const { config, rules } = model;
    const versions = version === ""
      ? this.#registry.get(name)!.ready().map(({ versionText }) => versionText)
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
    if (name === "") {
      return this.#readyModels().map(({ statistics }) => statistics.toMessage());
    }
    const ready = this.#registry.get(name)?.ready() ?? [];
    if (version === "") {
      if (ready.length > 0) return ready.map(({ statistics }) => statistics.toMessage());
      throw new ServerError("INVALID_ARG", `requested model '${name}' is not available`);
    }
    const number = parseVersion(version);
    if (ready.length === 0) {
      throw new ServerError("INVALID_ARG", `requested model '${name}' is not available`);
    }
    const model = ready.find((candidate) => candidate.version === number);
    if (model !== undefined) return [model.statistics.toMessage()];
    throw new ServerError(
      "INVALID_ARG",
      `requested model version is not available for model '${name}'`,
    );
  }

  async repositoryIndex(readyOnly: boolean): Promise<ModelIndexEntry[]> {
    // A repository that cannot be listed any more takes no model away: those known before are still shown.
    await this.#listDirectories().catch(() => {});
    return this.#registry.index(this.#directories, readyOnly);
  }

  infer(request: InferRequest, options?: InferOptions): Promise<InferResponse> {
    try {
      const model = this.#findModel(request);
      const bound = this.#memory.bind(request);
      if (bound === undefined) return model.infer(request, options?.signal);
      return bound.settle((own) => model.infer(own, options?.signal), this.#releases);
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
      const bound = this.#memory.bind(request);
      if (bound === undefined) return model.inferStream(request, receive, options?.signal);
      const receiver = bound.receive(receive, this.#releases);
      return bound.hold((own) => model.inferStream(own, receiver, options?.signal));
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

  releaseResponse(response: InferResponse): void {
    releaseResponse(this.#releases, response);
  }

  async loadModel(
    name: string,
    parameters: Readonly<Record<string, string | Uint8Array>>,
  ): Promise<void> {
    checkControlMode(this.#options.modelControlMode);
    if (this.#state !== "READY") throw notReady();
    checkModelName(name);
    await this.#lifecycle.load(name, { override: readOverride(name, parameters) });
    await this.#listDirectories();
  }

  async unloadModel(name: string, options: { readonly unloadDependents: boolean }): Promise<void> {
    checkControlMode(this.#options.modelControlMode);
    if (this.#state !== "READY") throw notReady();
    await this.#lifecycle.unload(name, options.unloadDependents);
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
    return {
      versions: models.map(({ statistics }) => statistics.snapshot()),
      ...(cache === undefined ? {} : { cache }),
    };
  }

  /** See `VersionStatistics.countBatchRetry`; a version that is being loaded or is gone is ignored. */
  countBatchRetry(name: string, version: number): void {
    this.#registry.get(name)?.version(version)?.model?.statistics.countBatchRetry();
  }

  /** Loads the models of the start; never rejects. */
  async start(): Promise<StartResult> {
    try {
      await this.#listDirectories();
      if (this.#state === "EXITING") throw new ServerError("UNAVAILABLE", "Server exiting");
      const names = startModelNames(this.#options, this.#directories);
      const loads = await Promise.allSettled(
        names.map((name) => this.#lifecycle.load(name, { isStart: true })),
      );
      if (this.#state === "INITIALIZING") this.#state = "READY";
      const failed = loads.some(({ status }) => status === "rejected");
      return {
        ok: !failed,
        error: failed ? new ServerError("INTERNAL", "failed to load all models") : undefined,
        models: listStartedModels(this.#registry, names, loads),
      };
    } catch (error) {
      if (this.#state === "INITIALIZING") this.#state = "FAILED";
      return { ok: false, error: ServerError.from(error), models: [] };
    }
  }

  /** Refuses new requests, finishes those in flight, unloads everything; true when that was done in time. */
  stop(timeoutMs: number): Promise<boolean> {
    this.#state = "EXITING";
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

  #readyModels(): Model[] {
    return this.#registry.entries().flatMap((entry) => entry.ready());
  }

  async #listDirectories(): Promise<void> {
    this.#log.verbose(1, "Polling model repository");
    this.#directories = await this.#parts.repository.list();
  }
}

function notReady(): ServerError {
  return new ServerError("UNAVAILABLE", "Server not ready");
}
