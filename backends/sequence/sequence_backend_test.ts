import assert from "node:assert/strict";
import { executeRequest } from "../execute_request_fixture.ts";
import { controlInput, createFixtureInstance, sequenceConfig } from "../sequence_fixture.ts";
import { FakeClock } from "../../server/core/fake_clock.ts";
import { filledIntegers, readIntegers } from "../integer_tensor.ts";
import { createSequenceBackend } from "./sequence_backend.ts";

function request(values: { start?: number; ready?: number; input?: number; shape?: number[] }) {
  const { start = 0, ready = 1, input = 0, shape = [1, 2] } = values;
  return executeRequest({
    inputs: [
      filledIntegers("INPUT", shape, input),
      controlInput("START", start),
      controlInput("READY", ready),
    ],
    outputs: ["OUTPUT"],
  });
}

function open(clock: FakeClock, parameters: Record<string, string> = {}) {
  return createFixtureInstance(
    createSequenceBackend,
    sequenceConfig({ controls: ["START", "READY"], parameters }),
    clock,
  );
}

function sumOf(outcome: unknown): number[] {
  const { outputs, error } = outcome as { outputs: Parameters<typeof readIntegers>; error?: Error };
  if (error !== undefined) throw error;
  return outputs.flatMap((output) => [...readIntegers(output)]);
}

Deno.test("sequence adds up what each place of the batch gets, and starts anew", async () => {
  await using instance = await open(new FakeClock());
  const first = await instance.execute([
    request({ start: 1, input: 3 }),
    request({ start: 1, input: 10 }),
  ]);
  assert.deepEqual(first.outcomes.map(sumOf), [[6, 6], [20, 20]]);
  const second = await instance.execute([
    request({ ready: 0, input: 99 }),
    request({ input: 1 }),
  ]);
  assert.deepEqual(second.outcomes.map(sumOf), [[], [22, 22]]);
  const third = await instance.execute([request({ input: 1 }), request({ start: 1, input: 5 })]);
  assert.deepEqual(third.outcomes.map(sumOf), [[8, 8], [10, 10]]);
});

Deno.test("sequence takes its delay once per batch, and answers in 32 bits", async () => {
  const clock = new FakeClock();
  await using instance = await open(clock, { execute_delay_ms: "40" });
  let isDone = false;
  const running = instance.execute([
    request({ start: 1, input: 2 ** 30 }),
    request({ start: 1, input: 1 }),
  ]);
  void running.then(() => isDone = true);
  await clock.advance(39);
  assert.equal(isDone, false);
  await clock.advance(1);
  assert.equal(isDone, true);
  const { outcomes, inputEndMs, outputStartMs } = await running;
  assert.deepEqual(outcomes.map(sumOf), [[-(2 ** 31), -(2 ** 31)], [2, 2]]);
  assert.deepEqual([inputEndMs, outputStartMs], [0, 40]);
  assert.equal(clock.timerCount, 0);
});

Deno.test("sequence fails the requests it is told to, and tells what is missing", async () => {
  await using instance = await open(new FakeClock(), { fail_every: "2" });
  const { outcomes } = await instance.execute([request({ start: 1 }), request({ start: 1 })]);
  assert.deepEqual(sumOf(outcomes[0]), [0, 0]);
  assert.throws(() => sumOf(outcomes[1]), { code: "INTERNAL", message: /'fail_every' is 2/ });
  const bare = executeRequest({ inputs: [controlInput("READY", 1)], outputs: ["OUTPUT"] });
  const { outcomes: [missing] } = await instance.execute([bare]);
  assert.throws(() => sumOf(missing), {
    code: "UNSUPPORTED",
    message: "failed to get input 'START'",
  });
  await assert.rejects(
    instance.execute(Array.from({ length: 5 }, () => request({}))),
    /larger than max-batch-size/,
  );
});

Deno.test("sequence refuses a configuration with all that is wrong in it", async () => {
  const config = sequenceConfig({ controls: ["START"], inputName: "IN" });
  await assert.rejects(
    async () => await createFixtureInstance(createSequenceBackend, config, new FakeClock()),
    (error: Error) => {
      assert.match(error.message, /expected input 'INPUT' of TYPE_INT32 .*, got none/);
      assert.match(error.message, /it has no input 'IN', only INPUT/);
      assert.match(error.message, /control input 'READY' of kind CONTROL_SEQUENCE_READY/);
      return true;
    },
  );
});

Deno.test("sequence needs no memory for places that nobody uses", async () => {
  const config = sequenceConfig({ controls: ["START", "READY"] });
  config.maxBatchSize = 2 ** 31 - 1;
  const beginMs = performance.now();
  await using instance = await createFixtureInstance(
    createSequenceBackend,
    config,
    new FakeClock(),
  );
  assert.ok(performance.now() - beginMs < 5_000);
  const { outcomes } = await instance.execute([request({ input: 3 })]);
  assert.deepEqual(outcomes.map(sumOf), [[6, 6]]);
});
