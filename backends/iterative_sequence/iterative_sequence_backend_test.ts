import assert from "node:assert/strict";
import { FakeClock } from "../../server/core/fake_clock.ts";
import { filledIntegers } from "../integer_tensor.ts";
import { streamedRequest } from "../send_fixture.ts";
import { createFixtureInstance, sequenceConfig } from "../sequence_fixture.ts";
import { createIterativeSequenceBackend } from "./iterative_sequence_backend.ts";

async function open({ isIterative = true } = {}) {
  const config = sequenceConfig({ controls: [] });
  config.input[0]!.dims = [1n];
  config.output[0]!.dims = [1n];
  const { value } = config.schedulingChoice;
  if (value !== undefined && "iterativeSequence" in value) value.iterativeSequence = isIterative;
  return await createFixtureInstance(createIterativeSequenceBackend, config, new FakeClock());
}

function request(id: bigint, count: number, sequenceStart: boolean, hold?: () => Promise<void>) {
  const given = {
    inputs: [filledIntegers("INPUT", [1, 1], count)],
    outputs: ["OUTPUT"],
    correlationId: id,
    sequenceStart,
  };
  return streamedRequest(given, { now: () => 0, ...hold === undefined ? {} : { hold } });
}

Deno.test("iterative_sequence counts down turn by turn, for each sequence of its own", async () => {
  await using instance = await open();
  const two = request(1n, 3, true);
  const one = request(2n, 1, true);
  const first = await instance.execute([two.request, one.request]);
  assert.deepEqual(first.outcomes, [{ streamed: true, reschedule: true }, { streamed: true }]);
  assert.deepEqual(one.sent, [{ atMs: 0, values: [0], isFinal: true }]);
  const again = { ...two.request, sequenceStart: false };
  assert.deepEqual((await instance.execute([again])).outcomes, [{
    streamed: true,
    reschedule: true,
  }]);
  assert.deepEqual((await instance.execute([again])).outcomes, [{ streamed: true }]);
  assert.deepEqual(two.sent.map(({ values, isFinal }) => [values, isFinal]), [
    [[2], false],
    [[1], false],
    [[0], true],
  ]);
});

Deno.test("iterative_sequence starts anew with START, whatever was left", async () => {
  await using instance = await open();
  await instance.execute([request(1n, 9, true).request]);
  const { request: fresh, sent } = request(1n, 4, true);
  await instance.execute([fresh]);
  assert.deepEqual(sent[0]?.values, [3]);
});

Deno.test("iterative_sequence takes no further turn before its answer is taken", async () => {
  await using instance = await open();
  let take: () => void = () => {};
  const { request: slow } = request(1n, 9, true, () => new Promise((resolve) => take = resolve));
  let isDone = false;
  const running = instance.execute([slow]).then(() => isDone = true);
  await new FakeClock().settle();
  assert.equal(isDone, false);
  take();
  await running;
});

Deno.test("iterative_sequence sends nothing where no further turn can come", async () => {
  await using instance = await open({ isIterative: false });
  const { request: only, sent } = request(1n, 2, true);
  const { outcomes } = await instance.execute([only]);
  assert.deepEqual(outcomes, [{ streamed: true, reschedule: true }]);
  assert.deepEqual(sent, []);
});
