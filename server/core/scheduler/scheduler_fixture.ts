import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ExecuteOutcome } from "../../../backends/backend.ts";
import {
  DataType,
  ModelConfigSchema,
  ModelDynamicBatchingSchema,
  type ModelInputSchema,
} from "../../../proto/gen/model_config_pb.ts";
import type { ServerError } from "../../../proto/status.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import { FakeClock } from "../fake_clock.ts";
import { VersionStatistics } from "../statistics.ts";
import { createTensorRules } from "../tensor_rules.ts";
import { createScheduler } from "./create_scheduler.ts";
import { type FakeExecution, FakeInstance, type FakeInstanceOptions } from "./fake_instance.ts";
import { InstancePool } from "./instance_pool.ts";
import { Job } from "./job.ts";
import type { Scheduler } from "./scheduler.ts";

/** A model to schedule for: the parts of its configuration that matter, and how its instances behave. */
export interface SchedulerFixtureOptions {
  /** 8 when absent. */
  readonly maxBatchSize?: number;
  /** One fixed FP32 input when absent. */
  readonly inputs?: MessageInitShape<typeof ModelInputSchema>[];
  /** Absent = the default scheduler. */
  readonly batching?: MessageInitShape<typeof ModelDynamicBatchingSchema>;
  readonly instanceCount?: number;
  readonly executeMs?: number | readonly number[];
  readonly outcome?: FakeInstanceOptions["outcome"];
  readonly failure?: FakeInstanceOptions["failure"];
  readonly delaySchedulerCount?: number;
}

/** A request of a test. */
export interface SentOptions {
  readonly id?: string;
  readonly rows?: number;
  readonly priority?: number;
  readonly timeoutUs?: number;
  readonly signal?: AbortSignal;
  readonly inputs?: readonly Tensor[];
}

/** What became of a request of a test. */
export interface Sent {
  readonly id: string;
  /** When it was answered, ms; undefined = not yet. */
  answeredMs: number | undefined;
  answerCount: number;
  error: ServerError | undefined;
  outcome: ExecuteOutcome | undefined;
}

/** A scheduler over fake instances in virtual time. */
export class SchedulerFixture {
  readonly clock = new FakeClock();
  readonly executions: FakeExecution[] = [];
  readonly answered: Sent[] = [];
  readonly statistics: VersionStatistics;
  readonly scheduler: Scheduler;
  #sentCount = 0;

  constructor(options: SchedulerFixtureOptions) {
    const { clock, executions } = this;
    const config = createConfig(options);
    this.statistics = new VersionStatistics({
      model: "m",
      version: 1,
      tags: {},
      clock,
      statistics: {},
    });
    const executeMs = [options.executeMs ?? 0].flat();
    const instances = Array.from(
      { length: options.instanceCount ?? 1 },
      (_, index) =>
        new FakeInstance(`m_${index}`, {
          clock,
          executions,
          executeMs,
          ...(options.outcome === undefined ? {} : { outcome: options.outcome }),
          ...(options.failure === undefined ? {} : { failure: options.failure }),
        }),
    );
    this.scheduler = createScheduler(config, {
      instances,
      createPool: (pooled) =>
        new InstancePool({ instances: pooled, clock, observer: this.statistics }),
      clock,
      observer: this.statistics,
      rules: createTensorRules(config),
      delaySchedulerCount: options.delaySchedulerCount ?? 0,
    });
  }

  /** Total rows of each execution so far. */
  get batchRows(): number[] {
    return this.executions.map(({ rows }) => rows);
  }

  /** Hands a request to the scheduler; a refusal is its answer. */
  send(options: SentOptions = {}): Sent {
    const id = options.id ?? String(this.#sentCount++);
    const sent: Sent = {
      id,
      answeredMs: undefined,
      answerCount: 0,
      error: undefined,
      outcome: undefined,
    };
    const answer = (outcome: ExecuteOutcome | undefined) => {
      sent.answerCount++;
      sent.answeredMs = this.clock.now();
      sent.outcome = outcome;
      if (outcome !== undefined && "error" in outcome) sent.error = outcome.error;
      this.answered.push(sent);
    };
    const job = new Job({
      id,
      correlationId: 0n,
      batchSize: options.rows ?? 1,
      inputs: options.inputs ?? [],
      outputs: ["Y"],
      parameters: {},
      signal: options.signal,
      priority: options.priority ?? 0,
      timeoutUs: options.timeoutUs ?? 0,
      startMs: this.clock.now(),
      onDone: (_job, outcome) => answer(outcome),
    });
    try {
      this.scheduler.enqueue(job);
    } catch (error) {
      answer({ error: error as ServerError });
    }
    return sent;
  }

  /** Sends one request per number of rows. */
  sendAll(rows: readonly number[]): Sent[] {
    return rows.map((count) => this.send({ rows: count }));
  }
}

function createConfig(options: SchedulerFixtureOptions) {
  const { batching, maxBatchSize = 8 } = options;
  return create(ModelConfigSchema, {
    name: "m",
    maxBatchSize,
    input: options.inputs ?? [{ name: "X", dataType: DataType.TYPE_FP32, dims: [1n] }],
    ...(batching === undefined ? {} : {
      schedulingChoice: {
        case: "dynamicBatching" as const,
        value: create(ModelDynamicBatchingSchema, {
          // What normalisation makes of a configuration without preferred sizes.
          preferredBatchSize: maxBatchSize > 0 ? [maxBatchSize] : [],
          ...batching,
        }),
      },
    }),
  });
}

/** An input of the given shape without content. */
export function tensor(name: string, shape: readonly number[], data = new Uint8Array()): Tensor {
  return { name, datatype: "FP32", shape, data };
}
