import assert from "node:assert/strict";
import type { ExecuteOutcome, ExecuteRequest } from "../../backends/backend.ts";
import { parseModelConfig } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import { FakeClock } from "./fake_clock.ts";
import { type FakeExecution, FakeInstance } from "./scheduler/fake_instance.ts";
import { VersionStatistics } from "./statistics.ts";
import { warmUp } from "./warmup.ts";
import type { WarmupSample } from "./warmup_sample.ts";

interface Setup {
  readonly config?: string;
  readonly outcome?: (request: ExecuteRequest) => ExecuteOutcome;
  readonly failure?: () => unknown;
}

function setUp({ config: text = "max_batch_size: 4", outcome, failure }: Setup = {}) {
  const clock = new FakeClock();
  const executions: FakeExecution[] = [];
  const { config } = parseModelConfig(`name: "m" ${text}`, "m/config.pbtxt");
  const decoupled = config.modelTransactionPolicy?.decoupled ?? false;
  const statistics = new VersionStatistics({
    model: "m",
    version: 1,
    tags: {},
    clock,
    statistics: {},
    decoupled,
  });
  const instance = new FakeInstance("m_0", {
    clock,
    executions,
    executeMs: [10],
    ...(outcome === undefined ? {} : { outcome }),
    ...(failure === undefined ? {} : { failure }),
  });
  const lines: string[] = [];
  const ignore = () => {};
  const verbose = (_level: number, line: string) => void lines.push(line);
  const log = { info: ignore, warning: ignore, error: ignore, verbose };
  const run = async (...samples: WarmupSample[]): Promise<ServerError | undefined> => {
    const running = warmUp(instance, { config, samples, observer: statistics, clock, log })
      .then(() => undefined, (error: ServerError) => error);
    await clock.advance(10_000_000);
    return await Promise.race([running, Promise.reject(new Error("still running"))]);
  };
  return { clock, executions, instance, lines, statistics, run };
}

function sample(change: Partial<WarmupSample> = {}): WarmupSample {
  const x = { name: "X", datatype: "FP32", shape: [1, 1], data: new Uint8Array(4) } as const;
  return { name: "s", batchSize: 1, count: 1, inputs: [x], outputs: ["Y"], ...change };
}

Deno.test("warmUp() runs batch_size requests together, count times, samples in order", async () => {
  const { executions, lines, statistics, run } = setUp();
  const error = await run(sample({ batchSize: 3, count: 2 }), sample({ outputs: ["Z"] }));
  assert.equal(lines[1], "model 'm', instance m_0 is running warmup sample 's' for iteration 2");
  assert.equal(lines.length, 3);
  assert.equal(error, undefined);
  assert.deepEqual(executions.map(({ rows }) => rows), [3, 3, 1]);
  assert.deepEqual(executions.map(({ requests }) => requests[0]!.outputs[0]), ["Y", "Y", "Z"]);
  const request = executions[0]!.requests[0]!;
  assert.deepEqual(
    [request.id, request.correlationId, request.sequenceStart, request.sequenceEnd],
    ["", 0n, false, false],
  );
  const { success, inferenceCount, executionCount, pending, inflight } = statistics.snapshot();
  assert.deepEqual([success, inferenceCount, executionCount, pending, inflight], [7, 7, 3, 0, 0]);
  const sizes = statistics.toMessage().batchStats.map(({ batchSize }) => batchSize);
  assert.deepEqual(sizes, [1n, 3n]);
});

Deno.test("warmUp() runs one request at a time for models that do not batch", async () => {
  const { executions, run } = setUp({ config: "" });
  assert.equal(await run(sample({ batchSize: 2, count: 2 })), undefined);
  assert.deepEqual(executions.map(({ rows }) => rows), [1, 1, 1, 1]);
});

Deno.test("warmUp() without samples does nothing", async () => {
  const { executions, run } = setUp();
  assert.equal(await run(), undefined);
  assert.equal(executions.length, 0);
});

Deno.test("warmUp() gives back the buffers of responses", async () => {
  let releaseCount = 0;
  const { run } = setUp({ outcome: () => ({ outputs: [], release: () => releaseCount++ }) });
  await run(sample({ batchSize: 2, count: 3 }));
  assert.equal(releaseCount, 6);
});

Deno.test("warmUp() names every sample that failed, with each error once", async () => {
  let count = 0;
  const { executions, run } = setUp({
    outcome: ({ outputs }) =>
      outputs[0] === "good"
        ? { outputs: [] }
        : { error: new ServerError("INTERNAL", ["cold", "cold", "fuel"][count++] ?? "more") },
  });
  const error = await run(
    sample({ name: "a", batchSize: 3, count: 5 }),
    sample({ outputs: ["good"] }),
    sample({ name: "b" }),
  );
  assert.deepEqual(
    [error?.code, error?.message],
    [
      "INVALID_ARG",
      "failed to run warmup sample 'a': cold; fuel; \n  failed to run warmup sample 'b': more; ",
    ],
  );
  assert.equal(executions.length, 3, "what failed is not run again");
});

Deno.test("warmUp() tells what an instance throws", async () => {
  const { run } = setUp({ failure: () => new Error("exploded") });
  const error = await run(sample());
  assert.match(error!.message, /^failed to run warmup sample 's': .*exploded; $/);
});

Deno.test("warmUp() takes all responses of decoupled models and waits for the last", async () => {
  let releaseCount = 0;
  const { clock, statistics, run } = setUp({
    config: "max_batch_size: 4 model_transaction_policy { decoupled: true }",
    outcome: (request) => {
      const response = { outputs: [], release: () => releaseCount++ };
      for (const delayMs of [5, 6, 7]) {
        clock.setTimer(delayMs, () => void request.send(response, false));
      }
      clock.setTimer(50, () => void request.send(undefined, true));
      return { streamed: true };
    },
  });
  assert.equal(await run(sample({ batchSize: 2 })), undefined);
  assert.equal(releaseCount, 6);
  const { success, inflight } = statistics.snapshot();
  assert.deepEqual([success, inflight], [2, 0]);
});

Deno.test("warmUp() fails for an error among the responses of a decoupled model", async () => {
  const { run } = setUp({
    config: "model_transaction_policy { decoupled: true }",
    outcome: (request) => {
      void request.send({ error: new ServerError("INTERNAL", "third is bad") }, false);
      void request.send(undefined, true);
      return { streamed: true };
    },
  });
  assert.match((await run(sample()))!.message, /'s': third is bad; $/);
});

Deno.test("warmUp() gives iterative requests their further turns, but not without end", async () => {
  const config = "max_batch_size: 4 sequence_batching { iterative_sequence: true }";
  const turns = new Map<ExecuteRequest, number>();
  const outcomeAfter = (count: number) => (request: ExecuteRequest): ExecuteOutcome => {
    const turn = (turns.get(request) ?? 0) + 1;
    turns.set(request, turn);
    if (turn < count) return { streamed: true, reschedule: true };
    return { outputs: [] };
  };
  const finite = setUp({ config, outcome: outcomeAfter(3) });
  assert.equal(await finite.run(sample({ batchSize: 2 })), undefined);
  assert.deepEqual(finite.executions.map(({ rows }) => rows), [2, 2, 2]);
  assert.equal(finite.statistics.snapshot().inflight, 0);
  const endless = setUp({ config, outcome: outcomeAfter(Infinity) });
  assert.match((await endless.run(sample()))!.message, /more than 10000 turns; $/);
});

Deno.test("warmUp() lets the rest of the server go on while executions wait for nothing", async () => {
  let nowMs = 0;
  let breathCount = 0;
  const clock = {
    now: () => nowMs,
    wallNow: () => nowMs,
    setTimer: (_delayMs: number, callback: () => void) => {
      breathCount++;
      queueMicrotask(callback);
      return { cancel: () => {} };
    },
  };
  const { config } = parseModelConfig('name: "m" max_batch_size: 4', "m/config.pbtxt");
  const statistics = new VersionStatistics({
    model: "m",
    version: 1,
    tags: {},
    clock,
    statistics: {},
    decoupled: false,
  });
  const { instance } = setUp();
  const prompt = {
    placement: instance.placement,
    execute: (requests: readonly ExecuteRequest[]) => {
      nowMs += 1;
      const outcomes = requests.map(() => ({ outputs: [] }));
      return Promise.resolve({ outcomes, inputEndMs: nowMs, outputStartMs: nowMs });
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const ignore = () => {};
  const log = { info: ignore, warning: ignore, error: ignore, verbose: ignore };
  const samples = [sample({ count: 100 })];
  await warmUp(prompt, { config, samples, observer: statistics, clock, log });
  assert.equal(breathCount, 10);
});
