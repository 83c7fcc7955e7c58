import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ExecuteOutcome } from "../../../backends/backend.ts";
import {
  DataType,
  ModelConfigSchema,
  ModelDynamicBatchingSchema,
  type ModelInputSchema,
  ModelSequenceBatchingSchema,
} from "../../../proto/gen/model_config_pb.ts";
import type { ServerError } from "../../../proto/status.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import { FakeClock } from "../fake_clock.ts";
import type { Log } from "../log.ts";
import type { ResponseCache } from "../response_cache.ts";
import { VersionStatistics } from "../statistics.ts";
import { createTensorRules } from "../tensor_rules.ts";
import type { LoadedBatchStrategy } from "./batch_strategy.ts";
import { CachingScheduler } from "./caching_scheduler.ts";
import { createScheduler } from "./create_scheduler.ts";
import { type FakeExecution, FakeInstance, type FakeInstanceOptions } from "./fake_instance.ts";
import { InstancePool } from "./instance_pool.ts";
import { Job, type JobOptions } from "./job.ts";
import type { Scheduler } from "./scheduler.ts";
import type { StateRules } from "./sequence_state.ts";

/** A model to schedule for: the parts of its configuration that matter, and how its instances behave. */
export interface SchedulerFixtureOptions {
  /** 8 when absent. */
  readonly maxBatchSize?: number;
  /** One fixed FP32 input when absent. */
  readonly inputs?: MessageInitShape<typeof ModelInputSchema>[];
  /** Absent = the default scheduler. */
  readonly batching?: MessageInitShape<typeof ModelDynamicBatchingSchema>;
  /** The sequence batcher instead of the dynamic one. */
  readonly sequences?: MessageInitShape<typeof ModelSequenceBatchingSchema>;
  /** Implicit states of the sequence batcher. */
  readonly stateRules?: StateRules;
  readonly instanceCount?: number;
  readonly executeMs?: number | readonly number[];
  readonly outcome?: FakeInstanceOptions["outcome"];
  readonly failure?: FakeInstanceOptions["failure"];
  readonly delaySchedulerCount?: number;
  readonly backlogDelayCount?: number;
  /** Custom batching. */
  readonly batchStrategy?: LoadedBatchStrategy;
  /** Absent = no response cache. */
  readonly cache?: ResponseCache;
}

/** A request of a test. */
export interface SentOptions {
  readonly id?: string;
  readonly rows?: number;
  /** With the sequence batcher: absent = a sequence of this one request, of its own. */
  readonly sequence?: bigint | string;
  readonly start?: boolean;
  readonly end?: boolean;
  readonly priority?: number;
  readonly timeoutUs?: number;
  readonly signal?: AbortSignal;
  readonly inputs?: readonly Tensor[];
  /** See `Job.isCall`. */
  readonly isCall?: boolean;
  /** The response can be streamed; absent = only one can be taken. */
  readonly onResponse?: JobOptions["onResponse"];
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
  /** Warnings in the log. */
  readonly warnings: string[] = [];
  readonly statistics: VersionStatistics;
  readonly scheduler: Scheduler;
  readonly instances: readonly FakeInstance[];
  /** Makes a further instance like the others. */
  readonly createInstance: (name: string) => FakeInstance;
  readonly #isSequential: boolean;
  #aloneCount = 0;
  #sentCount = 0;

  constructor(options: SchedulerFixtureOptions) {
    const { clock, executions } = this;
    const config = createConfig(options);
    this.#isSequential = options.sequences !== undefined;
    this.statistics = new VersionStatistics({
      model: "m",
      version: 1,
      tags: {},
      clock,
      statistics: {},
      cached: options.cache !== undefined,
    });
    const executeMs = [options.executeMs ?? 0].flat();
    this.createInstance = (name) =>
      new FakeInstance(name, {
        clock,
        executions,
        executeMs,
        ...(options.outcome === undefined ? {} : { outcome: options.outcome }),
        ...(options.failure === undefined ? {} : { failure: options.failure }),
      });
    const instances = Array.from(
      { length: options.instanceCount ?? 1 },
      (_, index) => this.createInstance(`m_${index}`),
    );
    this.instances = instances;
    const scheduler = createScheduler(config, {
      instances,
      createPool: (pooled) =>
        new InstancePool({ instances: pooled, clock, observer: this.statistics }),
      clock,
      observer: this.statistics,
      rules: createTensorRules(config),
      delaySchedulerCount: options.delaySchedulerCount ?? 0,
      backlogDelayCount: options.backlogDelayCount ?? 0,
      stateRules: options.stateRules,
      batchStrategy: options.batchStrategy,
    });
    const partition = options.cache?.createPartition();
    this.scheduler = partition === undefined ? scheduler : new CachingScheduler({
      scheduler,
      partition,
      observer: this.statistics,
      clock,
      log: warningLog(this.warnings),
      preservesOrdering: options.batching?.preserveOrdering ?? false,
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
    const isAlone = this.#isSequential && options.sequence === undefined;
    const job = new Job({
      id,
      correlationId: isAlone ? BigInt(++this.#aloneCount + 1_000_000) : options.sequence ?? 0n,
      sequenceStart: options.start ?? isAlone,
      sequenceEnd: options.end ?? isAlone,
      batchSize: options.rows ?? 1,
      inputs: options.inputs ?? [],
      outputs: ["Y"],
      parameters: {},
      signal: options.signal,
      isCall: options.isCall,
      priority: options.priority ?? 0,
      timeoutUs: options.timeoutUs ?? 0,
      startMs: this.clock.now(),
      onDone: (_job, outcome) => answer(outcome),
      ...(options.onResponse === undefined ? {} : { onResponse: options.onResponse }),
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

function warningLog(warnings: string[]): Log {
  const ignore = () => {};
  const warning = (message: string) => void warnings.push(message);
  return { info: ignore, warning, error: ignore, verbose: ignore };
}

function createConfig(options: SchedulerFixtureOptions) {
  const { batching, maxBatchSize = 8 } = options;
  return create(ModelConfigSchema, {
    name: "m",
    maxBatchSize,
    input: options.inputs ?? [{ name: "X", dataType: DataType.TYPE_FP32, dims: [1n] }],
    ...(options.sequences === undefined ? {} : {
      schedulingChoice: {
        case: "sequenceBatching" as const,
        value: create(ModelSequenceBatchingSchema, {
          maxSequenceIdleMicroseconds: 1_000_000n,
          ...options.sequences,
        }),
      },
    }),
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
