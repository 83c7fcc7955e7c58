import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import type {
  ExecuteOutcome,
  ExecuteReport,
  ExecuteRequest,
  ExecuteResponse,
  ModelInstance,
} from "../../../backends/backend.ts";
import {
  DataType,
  type ModelConfig,
  ModelConfigSchema,
  ModelSequenceBatching_Control_Kind as Kind,
} from "../../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../../proto/status.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import { VersionStatistics } from "../statistics.ts";
import { createTensorRules } from "../tensor_rules.ts";
import { createScheduler } from "./create_scheduler.ts";
import { InstancePool } from "./instance_pool.ts";
import { Job } from "./job.ts";
import { FakeSignal, MicroClock } from "./micro_clock_fixture.ts";
import type { Scheduler } from "./scheduler.ts";
import type { StateRules } from "./sequence_state.ts";

/** How long a sequence may be idle in these tests, ms. */
export const IDLE_MS = 10;

/** A world to try a sequence batcher in. */
export interface WorldOptions {
  readonly strategy: "direct" | "oldest";
  readonly maxBatchSize: number;
  readonly instanceCount: number;
  readonly maxQueueDelayMs: number;
  readonly minimumSlotUtilization: number;
  readonly maxCandidates: number;
  /** Inputs may have one or two elements. */
  readonly hasVariableShape: boolean;
  readonly stateRules: StateRules | undefined;
  /** Numbers 0 ≤ n < 1. */
  readonly random: () => number;
}

type Sums = Map<bigint | string | number, number>;

/** One run of a sequence from START to its end, as the reference model sees it. */
interface Life {
  /** Sum of what was executed since the last START: what the model must answer. */
  sum: number;
  /** Requests that are not answered. */
  openCount: number;
  /** When the last request came or was answered, ms. */
  lastMs: number;
  /** Number of the request that was executed last. */
  lastNumber: number;
  requestCount: number;
  /** Instance and place in the batch, once known. */
  instance: number;
  place: number;
  isRunning: boolean;
  isCancelled: boolean;
  /** No START was executed without failure yet: the next request has to be one. */
  mustStart: boolean;
}

/** One request, as the reference model sees it. */
interface Entry {
  readonly life: Life;
  readonly number: number;
  readonly value: number;
  readonly isStart: boolean;
  readonly signal: FakeSignal;
  readonly job: Job;
  expected: number | undefined;
  answerCount: number;
}

/** A model configuration for these worlds. */
export function worldConfig(options: Omit<WorldOptions, "stateRules" | "random">): ModelConfig {
  const { strategy, maxBatchSize, hasVariableShape } = options;
  const maxQueueDelayMicroseconds = BigInt(options.maxQueueDelayMs * 1000);
  const pair = { int32FalseTrue: [0, 1] };
  const flag = (name: string, kind: Kind) => ({ name, control: [{ kind, ...pair }] });
  return create(ModelConfigSchema, {
    name: "m",
    maxBatchSize,
    input: [{ name: "X", dataType: DataType.TYPE_INT32, dims: [hasVariableShape ? -1n : 1n] }],
    schedulingChoice: {
      case: "sequenceBatching",
      value: {
        maxSequenceIdleMicroseconds: BigInt(IDLE_MS * 1000),
        controlInput: [
          flag("START", Kind.CONTROL_SEQUENCE_START),
          flag("READY", Kind.CONTROL_SEQUENCE_READY),
        ],
        state: [{ inputName: "IN", outputName: "OUT", dataType: DataType.TYPE_INT32, dims: [1n] }],
        strategyChoice: strategy === "direct"
          ? {
            case: "direct",
            value: {
              maxQueueDelayMicroseconds,
              minimumSlotUtilization: options.minimumSlotUtilization,
            },
          }
          : {
            case: "oldest",
            value: {
              maxQueueDelayMicroseconds,
              maxCandidateSequences: options.maxCandidates,
              preferredBatchSize: [Math.max(1, maxBatchSize)],
            },
          },
      },
    },
  });
}

function integers(name: string, values: readonly number[]): Tensor {
  // Sums stay below 2^16.
  const data = new Uint8Array(4 * values.length);
  values.forEach((number, index) => {
    data[4 * index] = number;
    data[4 * index + 1] = number >> 8;
  });
  return { name, datatype: "INT32", shape: [1, values.length], data };
}

function firstInteger(tensors: readonly Tensor[], name: string): number {
  for (const { name: other, data } of tensors) {
    if (other === name) return data[0]! | (data[1]! << 8);
  }
  throw new Error(`No tensor '${name}'`);
}

/**
 * A sequence batcher over instances that add up in two ways, by place in the batch and by implicit state, next to a
 * reference model that adds up by sequence alone. Every step checks that both agree, that the requests of a sequence run
 * one at a time in their order, on one instance, and (direct) always at the same place of the batch.
 */
export class SequenceWorld {
  readonly clock = new MicroClock();
  readonly #options: WorldOptions;
  readonly #scheduler: Scheduler;
  readonly #statistics: VersionStatistics;
  readonly #entries = new Map<string, Entry>();
  readonly #open = new Map<bigint | string, Life>();
  readonly #waiting: Entry[] = [];
  #count = 0;
  #acceptedCount = 0;

  constructor(config: ModelConfig, options: WorldOptions) {
    this.#options = options;
    const { clock } = this;
    this.#statistics = new VersionStatistics({
      model: "m",
      version: 1,
      tags: {},
      clock,
      statistics: {},
    });
    const observer = this.#statistics;
    const instances = Array.from(
      { length: options.instanceCount },
      (_, index) => this.#createInstance(index),
    );
    this.#scheduler = createScheduler(config, {
      instances,
      createPool: (pooled) => new InstancePool({ instances: pooled, clock, observer }),
      clock,
      observer,
      rules: createTensorRules(config),
      delaySchedulerCount: 0,
      stateRules: options.stateRules,
    });
  }

  /** Sends a request; what the scheduler says to it must be what the reference model expects. */
  send(id: bigint | string, flags: { start: boolean; end: boolean; timeoutUs: number }): void {
    const { random, hasVariableShape } = this.#options;
    const { start, end, timeoutUs } = flags;
    const nowMs = this.clock.now();
    const known = this.#open.get(id);
    const isKnown = known !== undefined && !known.isCancelled &&
      (known.openCount > 0 || nowMs - known.lastMs < IDLE_MS);
    const life = isKnown ? known : createLife();
    const name = String(this.#count++);
    const value = 1 + Math.floor(random() * 100);
    const signal = new FakeSignal();
    if (random() < 0.02) signal.aborted = true;
    const size = hasVariableShape && random() < 0.5 ? 2 : 1;
    const job = new Job({
      id: name,
      correlationId: id,
      sequenceStart: start,
      sequenceEnd: end,
      batchSize: 1,
      inputs: [integers("X", size === 1 ? [value] : [value, 0])],
      outputs: ["Y"],
      parameters: {},
      signal,
      priority: 0,
      timeoutUs,
      startMs: nowMs,
      onDone: (_job, response) => this.#answered(entry, response!),
    });
    const number = life.requestCount + 1;
    const entry: Entry = {
      life,
      number,
      value,
      isStart: start,
      signal,
      job,
      expected: undefined,
      answerCount: 0,
    };
    this.#entries.set(name, entry);
    life.openCount++;
    life.requestCount = number;
    this.#open.set(id, life);
    try {
      this.#scheduler.enqueue(job);
    } catch (error) {
      life.openCount--;
      life.requestCount--;
      if (!isKnown) this.#open.delete(id);
      assert.match((error as Error).message, /START flag/);
      assert.ok(!isKnown && !start, "a known sequence was refused");
      return;
    }
    assert.ok(isKnown || start, "an unknown sequence was taken");
    this.#acceptedCount++;
    life.lastMs = nowMs;
    if (end) this.#open.delete(id);
    if (entry.answerCount === 0) this.#waiting.push(entry);
  }

  /** Cancels one of the requests that are not answered. */
  cancel(): void {
    const live = this.#waiting.filter(({ answerCount }) => answerCount === 0);
    this.#waiting.splice(0, this.#waiting.length, ...live);
    const entry = live[Math.floor(this.#options.random() * live.length)];
    if (entry === undefined) return;
    entry.signal.abort();
    if (entry.answerCount > 0) assert.equal(entry.job.outcome, undefined);
  }

  /** Lets everything come to an end, and checks that nothing is left. */
  async finish(finishesSequences: boolean): Promise<void> {
    let isStopped = false;
    this.#scheduler.stop({ finishesSequences }).then(() => isStopped = true);
    for (let round = 0; !isStopped && round < 50; round++) await this.clock.advance(IDLE_MS * 10);
    await this.clock.settle();
    assert.ok(isStopped, "the scheduler never stopped");
    assert.equal(this.#scheduler.inflightCount, 0);
    assert.equal(this.clock.timerCount, 0, "a timer was left");
    let answeredCount = 0;
    for (const { answerCount, signal } of this.#entries.values()) {
      answeredCount += answerCount;
      assert.ok(answerCount <= 1, "a request was answered twice");
      assert.ok(!signal.isWatched, "a signal is still watched");
    }
    assert.equal(answeredCount, this.#acceptedCount, "a request was never answered");
    const { pending, inflight } = this.#statistics.snapshot();
    assert.deepEqual({ pending, inflight }, { pending: 0, inflight: 0 });
  }

  #answered(entry: Entry, response: ExecuteResponse): void {
    const { life } = entry;
    entry.answerCount++;
    life.openCount--;
    life.lastMs = this.clock.now();
    if ("error" in response) {
      const { code, message } = response.error;
      const isDropped = entry.expected === undefined && !message.startsWith("Fault");
      // Whoever is dropped takes the sequence along.
      if (isDropped) life.isCancelled = true;
      if (isDropped && code === "CANCELLED") return;
      assert.match(message, /^(Fault|timeout of the corresponding sequence)/);
      return;
    }
    assert.ok(response.outputs.length === 1, "a state was shown to the client");
    assert.equal(firstInteger(response.outputs, "Y"), entry.expected, "another sequence's sum");
  }

  #createInstance(index: number): ModelInstance {
    const { random } = this.#options;
    const sums: Sums = new Map();
    let isBusy = false;
    return {
      placement: { name: `m_${index}`, kind: "KIND_CPU", deviceId: 0 },
      execute: (requests) => {
        assert.ok(!isBusy, "two batches at a time");
        isBusy = true;
        this.#checkBatch(index, requests);
        return new Promise<ExecuteReport>((resolve, reject) => {
          this.clock.setTimer(Math.floor(random() * 4), () => {
            isBusy = false;
            for (const { id } of requests) {
              if (id !== "") this.#entries.get(id)!.life.isRunning = false;
            }
            if (random() < 0.05) return reject(new Error("Fault of the instance"));
            const outcomes = requests.map((request, place) => this.#add(request, place, sums));
            const now = this.clock.now();
            resolve({ outcomes, inputEndMs: now, outputStartMs: now });
          });
        });
      },
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  }

  #checkBatch(instance: number, requests: readonly ExecuteRequest[]): void {
    const { strategy, maxBatchSize } = this.#options;
    assert.ok(requests.length <= Math.max(1, maxBatchSize), "a batch is too large");
    const ids = requests.filter(({ id }) => id !== "").map(({ correlationId }) => correlationId);
    assert.ok(new Set(ids).size === ids.length, "two sequences of one id in a batch");
    const elements = requests[0]!.inputs[0]!.shape[1];
    requests.forEach((request, place) => {
      assert.ok(request.inputs[0]!.shape[1] === elements, "shapes of a batch differ");
      const isReady = firstInteger(request.inputs, "READY") === 1;
      if (request.id === "") {
        assert.ok(strategy === "direct" && !isReady);
        return;
      }
      const { life, number, isStart } = this.#entries.get(request.id)!;
      const begins = isStart || life.mustStart;
      assert.ok(isReady && firstInteger(request.inputs, "START") === (begins ? 1 : 0));
      // Whatever becomes of it, nothing from before counts any more.
      if (begins) life.sum = 0;
      life.mustStart = begins;
      assert.ok(!life.isRunning, "two requests of a sequence at a time");
      assert.ok(number === life.lastNumber + 1, "a request was left out or is out of order");
      life.isRunning = true;
      life.lastNumber = number;
      if (life.instance < 0) {
        life.instance = instance;
        life.place = place;
      }
      assert.equal(instance, life.instance, "a sequence changed its instance");
      if (strategy === "direct") assert.equal(place, life.place, "a sequence changed its place");
    });
  }

  #add(request: ExecuteRequest, place: number, sums: Sums): ExecuteOutcome {
    const { strategy, stateRules, random } = this.#options;
    if (request.id === "") return { outputs: [] };
    const entry = this.#entries.get(request.id)!;
    if (random() < 0.05) return { error: new ServerError("INTERNAL", "Fault of the model") };
    const { life, value } = entry;
    life.sum += value;
    // As the test backends keep them: by place of the batch, or by correlation id.
    const key = strategy === "direct" ? place : request.correlationId;
    if (life.mustStart) sums.set(key, 0);
    life.mustStart = false;
    entry.expected = life.sum;
    const before = stateRules === undefined ? 0 : firstInteger(request.inputs, "IN");
    sums.set(key, sums.get(key)! + value);
    const outputs: Tensor[] = [];
    if (stateRules !== undefined) {
      assert.equal(before + value, life.sum, "another sequence's state");
      assert.equal(request.outputs.join(), "Y,OUT");
      outputs.push(integers("OUT", [before + value]));
    }
    outputs.push(integers("Y", [sums.get(key)!]));
    return { outputs };
  }
}

function createLife(): Life {
  return {
    sum: 0,
    openCount: 0,
    lastMs: 0,
    lastNumber: 0,
    requestCount: 0,
    instance: -1,
    place: -1,
    isRunning: false,
    isCancelled: false,
    mustStart: false,
  };
}
