import assert from "node:assert/strict";
import { DataType } from "../../../proto/gen/model_config_pb.ts";
import type { BatchRequest } from "../batch_strategy_api.ts";
import type { LoadedBatchStrategy } from "./batch_strategy.ts";
import { SchedulerFixture, type SchedulerFixtureOptions, tensor } from "./scheduler_fixture.ts";

const SECOND_US = 1_000_000n;

interface Batch {
  left: number;
}

/** A strategy that notes what it is asked; a batch takes as many bytes as `limit`. */
class NotedStrategy implements LoadedBatchStrategy {
  readonly notes: string[] = [];
  readonly failures: string[] = [];
  readonly #limit: number;

  constructor(limit = Infinity) {
    this.#limit = limit;
  }

  start(): unknown {
    this.notes.push("start");
    return { left: this.#limit };
  }

  includeRequest(request: BatchRequest, batch: unknown): unknown {
    const asked = request.inputs.reduce((sum, { byteSize }) => sum + byteSize, 0);
    const isTaken = asked <= (batch as Batch).left;
    if (isTaken) (batch as Batch).left -= asked;
    this.notes.push(`${request.id} ${isTaken ? "joins" : "waits"}`);
    return isTaken;
  }

  finish(_batch: unknown, requests: readonly BatchRequest[]): unknown {
    this.notes.push(`finish [${requests.map(({ id }) => id)}]`);
    return undefined;
  }

  tellFailure(call: string, reason: unknown): void {
    this.failures.push(`${call}: ${(reason as Error).message}`);
  }

  [Symbol.dispose](): void {
    this.notes.push("finalize");
  }
}

function createBatcher(
  batchStrategy: LoadedBatchStrategy,
  batching: NonNullable<SchedulerFixtureOptions["batching"]> = {},
  options: SchedulerFixtureOptions = {},
): SchedulerFixture {
  return new SchedulerFixture({ executeMs: 10, ...options, batching, batchStrategy });
}

function sendBytes(fixture: SchedulerFixture, ...sizes: readonly number[]) {
  return sizes.map((size) => fixture.send({ inputs: [tensor("X", [1], new Uint8Array(size))] }));
}

Deno.test("a custom strategy ends a batch before the request that it does not take", async () => {
  const strategy = new NotedStrategy(100);
  const fixture = createBatcher(strategy);
  sendBytes(fixture, 40, 60, 30, 70, 1);
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [2, 2, 1]);
  assert.deepEqual(strategy.notes, [
    ...["start", "0 joins", "1 joins", "2 waits", "finish [0,1]"],
    ...["start", "2 joins", "3 joins", "4 waits", "finish [2,3]"],
    ...["start", "4 joins", "finish [4]"],
  ]);
});

Deno.test("a request that a custom strategy takes into no batch runs alone", async () => {
  const strategy = new NotedStrategy(100);
  const fixture = createBatcher(strategy, { maxQueueDelayMicroseconds: SECOND_US });
  const sent = sendBytes(fixture, 101, 101, 50, 50, 1);
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [1, 1, 2]);
  await fixture.clock.advance(2000);
  assert.deepEqual(fixture.batchRows, [1, 1, 2, 1]);
  assert.ok(sent.every(({ error, answerCount }) => error === undefined && answerCount === 1));
});

Deno.test("a batch that a custom strategy ended does not wait for the delay", async () => {
  const fixture = createBatcher(new NotedStrategy(100), { maxQueueDelayMicroseconds: SECOND_US });
  sendBytes(fixture, 60);
  await fixture.clock.advance(5);
  assert.deepEqual(fixture.batchRows, []);
  sendBytes(fixture, 60);
  await fixture.clock.advance(0);
  assert.deepEqual(fixture.batchRows, [1]);
});

Deno.test("a custom strategy is asked once about each request of a batch that waits", async () => {
  const strategy = new NotedStrategy();
  const fixture = createBatcher(strategy, { maxQueueDelayMicroseconds: SECOND_US });
  for (let index = 0; index < 4; index++) {
    sendBytes(fixture, 1);
    await fixture.clock.advance(1);
  }
  await fixture.clock.advance(2000);
  assert.deepEqual(strategy.notes, [
    ...["start", "0 joins", "1 joins", "2 joins", "3 joins", "finish [0,1,2,3]"],
  ]);
});

Deno.test("a custom strategy begins anew when a better priority comes before those that joined", async () => {
  const strategy = new NotedStrategy();
  const fixture = createBatcher(strategy, {
    maxQueueDelayMicroseconds: SECOND_US,
    priorityLevels: 2n,
    defaultPriorityLevel: 2n,
  });
  fixture.send({ id: "low" });
  await fixture.clock.advance(1);
  fixture.send({ id: "high", priority: 1 });
  await fixture.clock.advance(2000);
  assert.deepEqual(strategy.notes, [
    ...["start", "low joins", "finish []"],
    ...["start", "high joins", "low joins", "finish [high,low]"],
  ]);
});

Deno.test("a custom strategy begins anew when one of those that joined goes away", async () => {
  const strategy = new NotedStrategy();
  const fixture = createBatcher(strategy, { maxQueueDelayMicroseconds: SECOND_US });
  const gone = new AbortController();
  fixture.send({ id: "a", signal: gone.signal });
  fixture.send({ id: "b" });
  await fixture.clock.advance(1);
  gone.abort();
  await fixture.clock.advance(2000);
  assert.deepEqual(strategy.notes, [
    ...["start", "a joins", "b joins", "finish []"],
    ...["start", "b joins", "finish [b]"],
  ]);
});

Deno.test("max_batch_size, shapes and preferred sizes hold with a custom strategy", async () => {
  const strategy = new NotedStrategy();
  const inputs = [{ name: "X", dataType: DataType.TYPE_FP32, dims: [-1n] }];
  const fixture = createBatcher(strategy, { preferredBatchSize: [2] }, {
    maxBatchSize: 3,
    inputs,
  });
  for (const size of [4, 4, 4, 8]) {
    fixture.send({ inputs: [tensor("X", [1, size], new Uint8Array(4 * size))] });
  }
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [2, 1, 1]);
  assert.deepEqual(strategy.notes, [
    ...["start", "0 joins", "1 joins", "2 joins", "finish [0,1]"],
    ...["start", "2 joins", "finish [2]"],
    ...["start", "3 joins", "finish [3]"],
  ]);
});

Deno.test("a custom strategy that throws ends the batch there", async () => {
  const strategy = new NotedStrategy();
  strategy.includeRequest = ({ id }) => {
    if (id !== "0") throw new Error(`no ${id}`);
    return true;
  };
  const fixture = createBatcher(strategy);
  const sent = sendBytes(fixture, 1, 1, 1);
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [1, 1, 1]);
  assert.deepEqual(strategy.failures, [
    "includeRequest: no 1",
    "includeRequest: no 1",
    "includeRequest: no 2",
  ]);
  assert.ok(sent.every(({ error }) => error === undefined));
});

Deno.test("a custom strategy whose start throws lets requests run alone", async () => {
  const strategy = new NotedStrategy();
  strategy.start = () => {
    throw new Error("no start");
  };
  const fixture = createBatcher(strategy);
  sendBytes(fixture, 1, 1);
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [1, 1]);
  assert.deepEqual(strategy.failures, [
    "start: no start",
    "start: no start",
  ]);
});

Deno.test("a custom strategy whose finish throws changes nothing", async () => {
  const strategy = new NotedStrategy();
  strategy.finish = () => {
    throw new Error("no finish");
  };
  const fixture = createBatcher(strategy);
  sendBytes(fixture, 1, 1);
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [2]);
  assert.deepEqual(strategy.failures, ["finish: no finish"]);
});

Deno.test("a custom strategy must answer true or false, at once", async () => {
  const strategy = new NotedStrategy();
  const answers = [() => 1, () => Promise.reject(new Error("late")), () => undefined];
  strategy.includeRequest = ({ id }) => answers[Number(id)]!();
  const fixture = createBatcher(strategy);
  sendBytes(fixture, 1, 1, 1);
  await fixture.clock.advance(100);
  assert.deepEqual(fixture.batchRows, [1, 1, 1]);
  assert.deepEqual(strategy.failures, [
    "includeRequest: True or false expected, got number 1",
    "includeRequest: A promise was returned; it must return at once and not be async",
    "includeRequest: True or false expected, got undefined",
  ]);
});

Deno.test("a custom strategy sees all of a request, and nothing of it once it was answered", async () => {
  const strategy = new NotedStrategy();
  const seen: BatchRequest[] = [];
  strategy.includeRequest = (request) => {
    seen.push(request);
    const [{ name, datatype, shape, byteSize, data } = assert.fail()] = request.inputs;
    assert.deepEqual([name, datatype, shape, byteSize], ["X", "FP32", [2, 1], 8]);
    assert.deepEqual([...data], [1, 2, 3, 4, 5, 6, 7, 8]);
    const { id, correlationId, batchSize, priority, timeoutUs, requestedOutputs } = request;
    assert.deepEqual([id, correlationId, batchSize, priority, timeoutUs], ["r", 7n, 2, 3, 9]);
    assert.deepEqual([requestedOutputs, request.parameters], [["Y"], {}]);
    return true;
  };
  const fixture = createBatcher(strategy);
  const inputs = [tensor("X", [2, 1], Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8))];
  fixture.send({ id: "r", rows: 2, sequence: 7n, priority: 3, timeoutUs: 9, inputs });
  await fixture.clock.advance(100);
  assert.deepEqual(strategy.failures, []);
  assert.deepEqual(seen.map((request) => request.inputs), [[]]);
});

Deno.test("a stopped batcher ends the batch that was being formed", async () => {
  const strategy = new NotedStrategy();
  const fixture = createBatcher(strategy, { maxQueueDelayMicroseconds: SECOND_US });
  const gone = new AbortController();
  fixture.send({ id: "a", signal: gone.signal });
  await fixture.clock.advance(1);
  gone.abort();
  await fixture.clock.advance(1);
  await fixture.scheduler.stop();
  assert.deepEqual(strategy.notes, ["start", "a joins", "finish []"]);
});
