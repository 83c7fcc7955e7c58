import type {
  BackendModel,
  DeviceClass,
  ExecuteResponse,
  ModelInstance,
  OutputTargets,
} from "../../backends/backend.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { InferRequest, InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type { Clock } from "./clock.ts";
import type { OutputLabels } from "./config_labels.ts";
import type { InferOptions, ResponseReceiver, StreamedResponse } from "./inference_api.ts";
import type { InstanceSet } from "./instance_set.ts";
import type { Log } from "./log.ts";
import type { ModelHold } from "./model_hold.ts";
import { type ClientMemory, findClientMemory } from "./client_memory.ts";
import { askReadiness } from "./model_readiness.ts";
import { createResponse } from "./model_response.ts";
import { type CheckedRequest, checkRequest } from "./request_check.ts";
import {
  type ComputeSums,
  Job,
  type JobOptions,
  releaseOutputs,
  requestPrefix,
} from "./scheduler/job.ts";
import { type Scheduler, type StopOptions, stoppedError } from "./scheduler/scheduler.ts";
import type { VersionStatistics } from "./statistics.ts";
import type { TensorRules } from "./tensor_rules.ts";
import { type Trace, traceOf } from "./trace.ts";

/** What a loaded version consists of. */
export interface ModelParts {
  readonly version: number;
  readonly config: ModelConfig;
  readonly rules: TensorRules;
  readonly labels: OutputLabels;
  readonly statistics: VersionStatistics;
  readonly scheduler: Scheduler;
  readonly instances: readonly ModelInstance[];
  /** Instances that may come and go; absent for ensembles. */
  readonly instanceSet?: InstanceSet;
  /** Versions that an ensemble is composed of. */
  readonly composing?: readonly Model[];
  /** Absent for ensembles, which have no backend. */
  readonly backendModel?: BackendModel;
  readonly clock: Clock;
  readonly log: Log;
  /** Families of devices on which the version could not be loaded, with the reason; absent = none. */
  readonly failedDevices?: ReadonlyMap<DeviceClass, string>;
  /** Where to leave what frees the buffers behind a response. */
  readonly releases: WeakMap<InferResponse, () => void>;
  /** What the rate limiter knows of the instances. */
  readonly rates?: Disposable;
  /** Custom batching; freed before all else. */
  readonly batchStrategy?: Disposable | undefined;
}

/** Options of one request, with what the core found out for it. */
export interface RunOptions extends InferOptions {
  /** Where outputs are wanted. */
  readonly targets?: OutputTargets | undefined;
}

/** Options of a request with any number of responses. */
export interface StreamOptions extends RunOptions {
  /** Of a request of an ensemble that holds the version: where its durations are added up. */
  readonly compute?: ComputeSums | undefined;
}

/** What a request carries through the scheduler. */
type JobCalls = Pick<
  JobOptions,
  "targets" | "signal" | "onDone" | "onResponse" | "takesFirst" | "compute" | "isCall" | "trace"
>;

/** One loaded version of a model. */
export class Model implements AsyncDisposable {
  readonly version: number;
  readonly versionText: string;
  readonly config: ModelConfig;
  readonly rules: TensorRules;
  readonly statistics: VersionStatistics;
  readonly labels: OutputLabels;
  readonly instanceSet: InstanceSet | undefined;
  readonly failedDevices: ReadonlyMap<DeviceClass, string>;
  /** Keeps the folder it was loaded from, when that is none of the repository's. */
  source: ModelHold | undefined;
  readonly #parts: ModelParts;
  /** Ensembles that use this version. */
  #holdCount = 0;
  #unheld: PromiseWithResolvers<void> | undefined;
  /** Only ensembles that hold the version may still send requests. */
  #isClosed = false;

  constructor(parts: ModelParts) {
    this.#parts = parts;
    this.version = parts.version;
    this.versionText = String(parts.version);
    this.config = parts.config;
    this.rules = parts.rules;
    this.statistics = parts.statistics;
    this.labels = parts.labels;
    this.instanceSet = parts.instanceSet;
    this.failedDevices = parts.failedDevices ?? new Map();
  }

  /** Requests taken and not answered yet. */
  get inflightCount(): number {
    return this.#parts.scheduler.inflightCount;
  }

  /** An instance of it will never answer again: it is to be loaded anew when somebody asks for that. */
  get hasGivenUp(): boolean {
    const instances = this.instanceSet?.instances ?? this.#parts.instances;
    return instances.some(({ hasGivenUp }) => hasGivenUp === true);
  }

  /** Which memory of clients its instances work on where it is; undefined = none. */
  clientMemory(): ClientMemory | undefined {
    const instances = this.instanceSet?.instances ?? this.#parts.instances;
    return findClientMemory(this.config, instances);
  }

  /** Whether its instances say that they are ready; `true` at once when they have no say. Never rejects. */
  isReady(): true | Promise<boolean> {
    const { instances, composing = [], log } = this.#parts;
    return askReadiness({
      name: this.config.name,
      versionText: this.versionText,
      instances: this.instanceSet?.instances ?? instances,
      composing,
      log,
    });
  }

  /** Checks and runs one request. @throws ServerError at once when it is refused. */
  infer(request: InferRequest, options?: RunOptions): Promise<InferResponse> {
    if (this.config.modelTransactionPolicy?.decoupled) {
      throw new ServerError(
        "UNSUPPORTED",
        "a single response cannot be promised by models with decoupled transaction policy",
      );
    }
    const checked = checkRequest(request, this.rules);
    const signal = options?.signal;
    const trace = traceOf(options?.trace);
    return new Promise((resolve, reject) => {
      const onDone = (_job: Job, response: ExecuteResponse | undefined) => {
        if (trace !== undefined && !signal?.aborted) trace.responded();
        try {
          // Without `onResponse` a job never ends without a response.
          resolve(this.#respond(request, response!));
        } catch (error) {
          this.#tellFailure(request, error);
          reject(error);
        }
      };
      const takesFirst = options?.takesFirst ?? false;
      const targets = options?.targets;
      this.#enqueue(request, checked, { signal, onDone, takesFirst, trace, targets });
    });
  }

  /**
   * Checks and runs one request with any number of responses; `compute` marks a request of an ensemble that holds this
   * version. @throws ServerError at once when it is refused.
   */
  inferStream(
    request: InferRequest,
    receive: ResponseReceiver,
    options?: StreamOptions,
  ): Promise<void> {
    const checked = checkRequest(request, this.rules);
    const signal = options?.signal;
    const trace = traceOf(options?.trace);
    return new Promise((resolve, reject) => {
      let hasResponse = false;
      const onResponse = (response: ExecuteResponse | undefined, isFinal: boolean) => {
        if (signal?.aborted && options?.takesAfterAbort !== true) {
          // Nobody is there to take it; a model that does not look at the signal goes on at its own pace.
          if (response !== undefined) releaseOutputs(response);
          return undefined;
        }
        if (response === undefined && !isFinal) return undefined;
        hasResponse = true;
        if (trace !== undefined && response !== undefined) trace.responded();
        return receive(this.#toMessage(request, response, isFinal));
      };
      const onDone = (_job: Job, response: ExecuteResponse | undefined) => {
        if (response !== undefined && "error" in response && !hasResponse) {
          this.#tellFailure(request, response.error);
          reject(response.error);
          return;
        }
        // Whoever is slow to take the last response keeps its buffers by `releaseResponse`.
        if (response !== undefined) void onResponse(response, true);
        resolve();
      };
      const compute = options?.compute;
      const isCall = compute !== undefined || options?.isCall === true;
      const targets = options?.targets;
      const calls = { signal, onDone, onResponse, compute, isCall, trace, targets };
      this.#enqueue(request, checked, calls);
    });
  }

  #enqueue(
    request: InferRequest,
    checked: CheckedRequest,
    calls: JobCalls,
  ): void {
    const { scheduler, clock } = this.#parts;
    const job = new Job({
      id: request.id,
      correlationId: request.correlationId,
      batchSize: checked.batchSize,
      inputs: checked.inputs,
      outputs: checked.outputs,
      parameters: request.parameters,
      sequenceStart: request.sequenceStart,
      sequenceEnd: request.sequenceEnd,
      priority: request.priority,
      timeoutUs: request.timeoutUs,
      startMs: clock.now(),
      ...calls,
    });
    if (this.#isClosed && !job.isCall) throw stoppedError(job);
    if (this.#parts.log.isVerbose?.(1)) this.#tellRequest(job);
    if (job.trace !== undefined) this.#enqueueTraced(job, job.trace);
    else scheduler.enqueue(job);
  }

  #enqueueTraced(job: Job, trace: Trace): void {
    const { startMs, id: requestId } = job;
    trace.begin({ name: this.config.name, version: this.versionText, requestId, startMs });
    trace.tensors("TENSOR_QUEUE_INPUT", job.inputs);
    try {
      this.#parts.scheduler.enqueue(job);
    } catch (refusal) {
      trace.finish();
      throw refusal;
    }
  }

  #toMessage(
    request: InferRequest,
    response: ExecuteResponse | undefined,
    isFinal: boolean,
  ): StreamedResponse {
    if (response === undefined) return { isFinal };
    try {
      return { response: this.#respond(request, response), isFinal };
    } catch (error) {
      this.#tellFailure(request, error);
      return { error: ServerError.from(error), isFinal };
    }
  }

  #tellRequest({ id, inputs, outputs, batchSize }: Job): void {
    const given = inputs.map(({ name, datatype, shape }) => `${name} ${datatype} [${shape}]`);
    this.#parts.log.verbose(
      1,
      `${
        requestPrefix(id)
      }request for '${this.config.name}' version ${this.versionText}, batch size ` +
        `${batchSize}, inputs: ${given.join(", ")}, outputs: ${outputs.join(", ")}`,
    );
  }

  #tellFailure({ id }: InferRequest, error: unknown): void {
    const place = `'${this.config.name}' version ${this.versionText}`;
    this.#parts.log.verbose(
      1,
      `${requestPrefix(id)}request for ${place} failed: ${ServerError.from(error).toReason()}`,
    );
  }

  #respond(request: InferRequest, outcome: ExecuteResponse): InferResponse {
    if ("error" in outcome) throw outcome.error;
    const { labels, releases } = this.#parts;
    let response: InferResponse;
    try {
      response = createResponse(outcome, {
        request,
        version: this.versionText,
        rules: this.rules,
        labels,
      });
    } catch (error) {
      outcome.release?.();
      throw ServerError.from(error);
    }
    if (outcome.release !== undefined) releases.set(response, outcome.release);
    return response;
  }

  /**
   * Keeps the version running for an ensemble: when it is stopped, it goes on serving those who hold it. Returns how to
   * give it back, once.
   */
  hold(): () => void {
    this.#holdCount++;
    return () => {
      if (--this.#holdCount === 0) this.#unheld?.resolve();
    };
  }

  /** Refuses new requests; settles when nobody holds the version and all taken requests were answered. */
  stop(options?: StopOptions): Promise<void> {
    if (this.#holdCount === 0) return this.#parts.scheduler.stop(options);
    this.#isClosed = options?.finishesSequences !== true;
    this.#unheld ??= Promise.withResolvers<void>();
    return this.#unheld.promise.then(() => this.#parts.scheduler.stop(options));
  }

  /** Frees everything, what fails to be freed does not hold up the rest; call it after `stop` has settled. */
  async [Symbol.asyncDispose](): Promise<void> {
    const { source } = this;
    if (source === undefined) return await this.#free();
    await source.releaseLoaded(() => this.#free());
  }

  async #free(): Promise<void> {
    await using disposables = new AsyncDisposableStack();
    if (this.#parts.rates !== undefined) disposables.use(this.#parts.rates);
    if (this.#parts.backendModel !== undefined) disposables.use(this.#parts.backendModel);
    for (const instance of this.#parts.instances) disposables.use(instance);
    if (this.instanceSet !== undefined) disposables.use(this.instanceSet);
    disposables.use(this.#parts.batchStrategy);
  }
}
