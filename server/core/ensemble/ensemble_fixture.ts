import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ExecuteResponse } from "../../../backends/backend.ts";
import {
  DataType,
  type ModelConfig,
  ModelConfigSchema,
} from "../../../proto/gen/model_config_pb.ts";
import type { InferRequest, InferResponse } from "../../../proto/infer.ts";
import type { ServerError } from "../../../proto/status.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import { FakeClock } from "../fake_clock.ts";
import type { ResponseReceiver } from "../inference_api.ts";
import { cancelledError, Job, type JobOptions } from "../scheduler/job.ts";
import { VersionStatistics } from "../statistics.ts";
import { bindStep, type StepCallOptions, type StepModel } from "./bound_step.ts";
import { createEnsembleGraph } from "./ensemble_graph.ts";
import { EnsembleScheduler } from "./ensemble_scheduler.ts";
import { StepGate } from "./step_gate.ts";

/** How a fake composing model behaves. */
export interface FakeStepOptions {
  /** Names of the inputs; `["IN"]` when absent. */
  readonly inputs?: readonly string[];
  /** Names of the outputs; `["OUT"]` when absent. */
  readonly outputs?: readonly string[];
  /** Dimensions of all its tensors; `[1]` when absent. */
  readonly dims?: readonly number[];
  readonly maxBatchSize?: number;
  /** Virtual time between responses, 1 ms when absent. */
  readonly delayMs?: number;
  /** Makes the model decoupled, with so many responses per request. */
  readonly responseCount?: number;
  /** Refuses or fails the request when it returns an error. */
  readonly failure?: (request: InferRequest) => ServerError | undefined;
  /** The request is refused at once instead of failing later. */
  readonly refuses?: boolean;
  /** The outputs of a response; by default the first input under each name of an output, without a copy. */
  readonly compute?: (request: InferRequest, index: number) => Tensor[];
  /** Sends its responses one behind the other, without waiting for anything. */
  readonly ignoresHold?: boolean;
  /** The outputs of `compute` are views of inputs, not buffers of their own. */
  readonly isView?: boolean;
  readonly parameters?: InferResponse["parameters"];
}

/** A composing model in virtual time. It notes requests and responses, and destroys what was released. */
export class FakeStepModel implements StepModel {
  readonly config: ModelConfig;
  readonly versionText = "1";
  readonly requests: InferRequest[] = [];
  readonly startsMs: number[] = [];
  readonly faults: string[] = [];
  /** Requests that were told to stop before they ended. */
  abortedCount = 0;
  inflightCount = 0;
  mostInflight = 0;
  readonly #clock: FakeClock;
  readonly #options: FakeStepOptions;
  /** Responses that were handed out, and whether they were released. */
  readonly #responses = new Map<InferResponse, boolean>();

  constructor(name: string, clock: FakeClock, options: FakeStepOptions = {}) {
    this.#clock = clock;
    this.#options = options;
    const { maxBatchSize = 0, dims = [1] } = options;
    const tensor = (tensorName: string) => ({
      name: tensorName,
      dataType: DataType.TYPE_UINT8,
      dims: dims.map(BigInt),
    });
    this.config = create(ModelConfigSchema, {
      name,
      maxBatchSize,
      input: (options.inputs ?? ["IN"]).map(tensor),
      output: (options.outputs ?? ["OUT"]).map(tensor),
      modelTransactionPolicy: { decoupled: options.responseCount !== undefined },
    });
  }

  get responseCount(): number {
    return this.#responses.size;
  }

  get unreleasedCount(): number {
    return [...this.#responses.values()].filter((isReleased) => !isReleased).length;
  }

  inferStream(
    request: InferRequest,
    receive: ResponseReceiver,
    { signal, compute }: StepCallOptions,
  ): Promise<void> {
    const error = this.#options.failure?.(request);
    if (error !== undefined && this.#options.refuses) throw error;
    this.requests.push(request);
    this.startsMs.push(this.#clock.now());
    this.mostInflight = Math.max(this.mostInflight, ++this.inflightCount);
    compute.inferMs += this.#options.delayMs ?? 1;
    return this.#run(request, receive, signal, error).finally(() => this.inflightCount--);
  }

  async #run(
    request: InferRequest,
    receive: ResponseReceiver,
    signal: StepCallOptions["signal"],
    error: ServerError | undefined,
  ): Promise<void> {
    const count = this.#options.responseCount ?? 1;
    for (let index = 0; index < count; index++) {
      if (index === 0 || this.#options.ignoresHold !== true) await this.#wait(signal);
      if (signal.aborted) {
        this.abortedCount++;
        throw cancelledError();
      }
      if (error !== undefined) throw error;
      const isFinal = this.#options.responseCount === undefined;
      const hold = receive({ response: this.#respond(request, index), isFinal });
      if (this.#options.ignoresHold !== true) await hold;
    }
    if (this.#options.responseCount !== undefined) receive({ isFinal: true });
  }

  #wait(signal: StepCallOptions["signal"]): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        timer.cancel();
        signal.removeEventListener("abort", end);
        resolve();
      };
      const timer = this.#clock.setTimer(this.#options.delayMs ?? 1, end);
      signal.addEventListener("abort", end);
    });
  }

  #respond(request: InferRequest, index: number): InferResponse {
    const compute = this.#options.compute ??
      (({ inputs }: InferRequest) =>
        (this.#options.outputs ?? ["OUT"]).map((name) => ({ ...inputs[0]!, name })));
    const response: InferResponse = {
      modelName: request.modelName,
      modelVersion: "1",
      id: request.id,
      parameters: this.#options.parameters ?? {},
      outputs: compute(request, index),
    };
    this.#responses.set(response, false);
    return response;
  }

  releaseResponse(response: InferResponse): void {
    if (this.#responses.get(response) !== false) this.faults.push("released twice, or not ours");
    this.#responses.set(response, true);
    // Only a buffer of its own: a view of an input is destroyed with the input.
    if (this.#options.compute !== undefined && this.#options.isView !== true) {
      for (const { data } of response.outputs) data.fill(255);
    }
  }
}

/** What became of a request of a test. */
export interface EnsembleAnswer {
  readonly atMs: number;
  readonly response: ExecuteResponse | undefined;
  readonly isFinal: boolean;
}

/** A request of a test. */
export interface SentRequest {
  readonly answers: EnsembleAnswer[];
  doneCount: number;
  readonly error: ServerError | undefined;
  /** First byte of each output of the last answer, read when it came. */
  bytes: Record<string, number>;
}

/** An ensemble over fake models in virtual time. */
export class EnsembleFixture {
  readonly clock = new FakeClock();
  readonly models = new Map<string, FakeStepModel>();
  readonly statistics: VersionStatistics;
  readonly scheduler: EnsembleScheduler;
  readonly gates: StepGate[] = [];
  readonly absentOutputs: string[] = [];
  timeoutCount = 0;
  isReleased = false;
  /** What `send` returns to steps when an answer was taken. */
  clientHold: Promise<void> | undefined;
  /** Answers are released at once. */
  releasesAnswers = true;

  constructor(
    config: MessageInitShape<typeof ModelConfigSchema>,
    models: Readonly<Record<string, FakeStepOptions>>,
  ) {
    const { clock } = this;
    const ensemble = create(ModelConfigSchema, { name: "e", ...config });
    for (const [name, options] of Object.entries(models)) {
      this.models.set(name, new FakeStepModel(name, clock, options));
    }
    this.statistics = new VersionStatistics({
      model: "e",
      version: 1,
      tags: {},
      clock,
      statistics: {},
    });
    const graph = createEnsembleGraph(ensemble);
    const { schedulingChoice, maxBatchSize } = ensemble;
    const limit = schedulingChoice.case === "ensembleScheduling"
      ? schedulingChoice.value.maxInflightRequests
      : 0;
    const isBatched = maxBatchSize > 0;
    this.scheduler = new EnsembleScheduler({
      name: "e",
      graph,
      boundSteps: graph.steps.map((step) =>
        bindStep(step, this.model(step.modelName), this.#gate(limit))
      ),
      outputs: new Map(
        ensemble.output.map((
          { name, dims },
        ) => [name, { name, dims: dims.map(Number), isBatched }]),
      ),
      isBatched,
      inputNames: ensemble.input.map(({ name }) => name),
      isDecoupled: Object.values(models).some(({ responseCount }) => responseCount !== undefined),
      onAbsentOutput: (name) => void this.absentOutputs.push(name),
      clock,
      observer: this.statistics,
      releaseModels: () => this.isReleased = true,
    });
  }

  #gate(limit: number): StepGate | undefined {
    if (limit === 0) return undefined;
    const gate = new StepGate({ limit, clock: this.clock, onTimeout: () => this.timeoutCount++ });
    this.gates.push(gate);
    return gate;
  }

  model(name: string): FakeStepModel {
    return this.models.get(name)!;
  }

  /** Sends a request; every input has one byte. */
  send(
    inputs: Readonly<Record<string, number>>,
    change: Partial<JobOptions> = {},
  ): SentRequest {
    const sent: SentRequest & { error: ServerError | undefined } = {
      answers: [],
      doneCount: 0,
      error: undefined,
      bytes: {},
    };
    const take = (response: ExecuteResponse | undefined, isFinal: boolean) => {
      sent.answers.push({ atMs: this.clock.now(), response, isFinal });
      if (response === undefined) return;
      if ("error" in response) sent.error = response.error;
      else {
        sent.bytes = Object.fromEntries(response.outputs.map(({ name, data }) => [name, data[0]!]));
        if (this.releasesAnswers) response.release?.();
      }
    };
    this.scheduler.enqueue(
      new Job({
        id: "",
        correlationId: 0n,
        batchSize: 1,
        inputs: Object.entries(inputs).map(([name, value]) => byteTensor(name, value)),
        outputs: ["Y"],
        parameters: {},
        signal: undefined,
        priority: 0,
        timeoutUs: 0,
        startMs: this.clock.now(),
        onDone: (_job, response) => {
          sent.doneCount++;
          if (response !== undefined) take(response, true);
        },
        onResponse: (response, isFinal) => {
          take(response, isFinal);
          return this.clientHold;
        },
        ...change,
      }),
    );
    return sent;
  }
}

/** A tensor of one byte. */
export function byteTensor(name: string, value: number, shape: readonly number[] = [1]): Tensor {
  return { name, datatype: "UINT8", shape, data: Uint8Array.of(value) };
}

/** One step: its model, `{ input: tensor }` and `{ output: tensor }`. */
export type StepDescription = readonly [
  model: string,
  inputs: Readonly<Record<string, string>>,
  outputs: Readonly<Record<string, string>>,
];

/** The configuration of an ensemble of UINT8 tensors. */
export function ensembleConfig(
  steps: readonly StepDescription[],
  change: {
    readonly inputs?: readonly string[];
    readonly outputs?: readonly string[];
    readonly maxBatchSize?: number;
    readonly maxInflightRequests?: number;
    readonly dims?: readonly number[];
    /** Of all its tensors. */
    readonly reshape?: readonly number[];
  } = {},
): MessageInitShape<typeof ModelConfigSchema> {
  const { inputs = ["X"], outputs = ["Y"], maxBatchSize = 0, dims = [1], reshape } = change;
  const tensor = (name: string) => ({
    name,
    dataType: DataType.TYPE_UINT8,
    dims: dims.map(BigInt),
    ...(reshape === undefined ? {} : { reshape: { shape: reshape.map(BigInt) } }),
  });
  return {
    platform: "ensemble",
    maxBatchSize,
    input: inputs.map(tensor),
    output: outputs.map(tensor),
    schedulingChoice: {
      case: "ensembleScheduling",
      value: {
        maxInflightRequests: change.maxInflightRequests ?? 0,
        step: steps.map(([modelName, inputMap, outputMap]) => ({
          modelName,
          modelVersion: -1n,
          inputMap: { ...inputMap },
          outputMap: { ...outputMap },
        })),
      },
    },
  };
}
