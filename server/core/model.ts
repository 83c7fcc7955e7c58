import type { BackendModel, ExecuteOutcome, ModelInstance } from "../../backends/backend.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { CancelSignal, InferRequest, InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type { Clock } from "./clock.ts";
import type { OutputLabels } from "./config_labels.ts";
import type { Log } from "./log.ts";
import { createResponse } from "./model_response.ts";
import { checkRequest } from "./request_check.ts";
import { Job, requestPrefix } from "./scheduler/job.ts";
import type { Scheduler } from "./scheduler/scheduler.ts";
import type { VersionStatistics } from "./statistics.ts";
import type { TensorRules } from "./tensor_rules.ts";

/** What a loaded version consists of. */
export interface ModelParts {
  readonly version: number;
  readonly config: ModelConfig;
  readonly rules: TensorRules;
  readonly labels: OutputLabels;
  readonly statistics: VersionStatistics;
  readonly scheduler: Scheduler;
  readonly instances: readonly ModelInstance[];
  readonly backendModel: BackendModel;
  readonly clock: Clock;
  readonly log: Log;
  /** Where to leave what frees the buffers behind a response. */
  readonly releases: WeakMap<InferResponse, () => void>;
}

/** One loaded version of a model. */
export class Model implements AsyncDisposable {
  readonly version: number;
  readonly versionText: string;
  readonly config: ModelConfig;
  readonly rules: TensorRules;
  readonly statistics: VersionStatistics;
  readonly #parts: ModelParts;

  constructor(parts: ModelParts) {
    this.#parts = parts;
    this.version = parts.version;
    this.versionText = String(parts.version);
    this.config = parts.config;
    this.rules = parts.rules;
    this.statistics = parts.statistics;
  }

  /** Requests taken and not answered yet. */
  get inflightCount(): number {
    return this.#parts.scheduler.inflightCount;
  }

  /** Checks and runs one request. @throws ServerError at once when it is refused. */
  infer(request: InferRequest, signal: CancelSignal | undefined): Promise<InferResponse> {
    const { scheduler, clock } = this.#parts;
    const checked = checkRequest(request, this.rules);
    return new Promise((resolve, reject) => {
      scheduler.enqueue(
        new Job({
          id: request.id,
          correlationId: request.correlationId,
          batchSize: checked.batchSize,
          inputs: checked.inputs,
          outputs: checked.outputs,
          parameters: request.parameters,
          signal,
          priority: request.priority,
          timeoutUs: request.timeoutUs,
          startMs: clock.now(),
          onDone: (_job, outcome) => {
            try {
              resolve(this.#respond(request, outcome));
            } catch (error) {
              this.#tellFailure(request, error);
              reject(error);
            }
          },
        }),
      );
    });
  }

  #tellFailure({ id }: InferRequest, error: unknown): void {
    const place = `'${this.config.name}' version ${this.versionText}`;
    this.#parts.log.verbose(
      1,
      `${requestPrefix(id)}request for ${place} failed: ${ServerError.from(error).toReason()}`,
    );
  }

  #respond(request: InferRequest, outcome: ExecuteOutcome): InferResponse {
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

  /** Refuses new requests; settles when all taken ones were answered. */
  stop(): Promise<void> {
    return this.#parts.scheduler.stop();
  }

  /** Frees everything, what fails to be freed does not hold up the rest; call it after `stop` has settled. */
  async [Symbol.asyncDispose](): Promise<void> {
    await using disposables = new AsyncDisposableStack();
    disposables.use(this.#parts.backendModel);
    for (const instance of this.#parts.instances) disposables.use(instance);
  }
}
