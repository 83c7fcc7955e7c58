import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { DataType, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { FakeClock } from "../../server/core/fake_clock.ts";
import { streamedRequest } from "../send_fixture.ts";
import { createFixtureInstance } from "../sequence_fixture.ts";
import { createRepeatBackend } from "./repeat_backend.ts";

function repeatConfig(parameters: Record<string, string> = {}, outputDims = [1n]) {
  const { TYPE_INT32, TYPE_UINT32 } = DataType;
  return create(ModelConfigSchema, {
    name: "m",
    input: [
      { name: "IN", dataType: TYPE_INT32, dims: [-1n] },
      { name: "DELAY", dataType: TYPE_UINT32, dims: [-1n] },
      { name: "WAIT", dataType: TYPE_UINT32, dims: [1n] },
    ],
    output: [
      { name: "OUT", dataType: TYPE_INT32, dims: outputDims },
      { name: "IDX", dataType: TYPE_UINT32, dims: [1n] },
    ],
    parameters: Object.fromEntries(
      Object.entries(parameters).map(([key, stringValue]) => [key, { stringValue }]),
    ),
  });
}

function integers(name: string, values: readonly number[]): Tensor {
  const data = new Uint8Array(Int32Array.from(values).buffer);
  return { name, datatype: name === "IN" ? "INT32" : "UINT32", shape: [values.length], data };
}

function inputs(values: readonly number[], delays: readonly number[], wait = 0) {
  return [integers("IN", values), integers("DELAY", delays), integers("WAIT", [wait])];
}

const OUTPUTS = ["OUT", "IDX"];

Deno.test("repeat sends each element after its delay, then the final flag alone", async () => {
  const clock = new FakeClock();
  await using instance = await createFixtureInstance(createRepeatBackend, repeatConfig(), clock);
  const now = () => clock.now();
  const given = { inputs: inputs([4, 5, 6], [10, 0, 20], 15), outputs: OUTPUTS };
  const { request, sent } = streamedRequest(given, { now });
  let isFree = false;
  const running = instance.execute([request]);
  void running.then(() => isFree = true);
  await clock.advance(14);
  assert.equal(isFree, false);
  await clock.advance(1);
  assert.equal(isFree, true, "occupied for WAIT only");
  assert.deepEqual((await running).outcomes, [{ streamed: true }]);
  await clock.advance(20);
  assert.deepEqual(sent, [
    { atMs: 10, values: [4, 0], isFinal: false },
    { atMs: 10, values: [5, 1], isFinal: false },
    { atMs: 30, values: [6, 2], isFinal: false },
    { atMs: 30, isFinal: true },
  ]);
  assert.equal(clock.timerCount, 0);
});

Deno.test("repeat of nothing is the final flag alone", async () => {
  const clock = new FakeClock();
  await using instance = await createFixtureInstance(createRepeatBackend, repeatConfig(), clock);
  const given = { inputs: inputs([], []), outputs: OUTPUTS };
  const { request, sent } = streamedRequest(given, { now: () => clock.now() });
  await instance.execute([request]);
  await clock.settle();
  assert.deepEqual(sent, [{ atMs: 0, isFinal: true }]);
});

Deno.test("repeat follows its parameters: count, delay, failures, size of the output", async () => {
  const clock = new FakeClock();
  const config = repeatConfig(
    { response_count: "5", response_delay_ms: "1", response_fail_every: "3" },
    [2n, 3n],
  );
  await using instance = await createFixtureInstance(createRepeatBackend, config, clock);
  const given = { inputs: inputs([7, 8], [0, 1]), outputs: ["OUT"] };
  const { request, sent } = streamedRequest(given, { now: () => clock.now() });
  await instance.execute([request]);
  await clock.advance(10);
  assert.deepEqual(sent.map(({ atMs, values }) => [atMs, values]), [
    [1, [7]],
    [3, [8]],
    [4, undefined],
    [6, [8]],
    [7, [7]],
    [7, undefined],
  ]);
  assert.equal(sent[2]?.error?.code, "INTERNAL");
});

Deno.test("repeat waits for a slow receiver and stops when the client has gone", async () => {
  const clock = new FakeClock();
  await using instance = await createFixtureInstance(createRepeatBackend, repeatConfig(), clock);
  const controller = new AbortController();
  const held: (() => void)[] = [];
  const hold = () => new Promise<void>((resolve) => held.push(resolve));
  const given = {
    inputs: inputs([1, 2, 3], [0, 0, 60_000]),
    outputs: OUTPUTS,
    signal: controller.signal,
  };
  const { request, sent } = streamedRequest(given, { now: () => clock.now(), hold });
  await instance.execute([request]);
  await clock.advance(100);
  assert.equal(sent.length, 1, "the second waits until the first is taken");
  held.shift()?.();
  await clock.advance(1);
  assert.equal(sent.length, 2);
  held.shift()?.();
  await clock.advance(1);
  controller.abort();
  await clock.settle();
  assert.deepEqual(sent.map(({ isFinal }) => isFinal), [false, false, true]);
  assert.equal(clock.timerCount, 0);
});

Deno.test("repeat lets others run between many responses that nobody holds", async () => {
  const clock = new FakeClock();
  const config = repeatConfig({ response_count: "200" });
  await using instance = await createFixtureInstance(createRepeatBackend, config, clock);
  const given = { inputs: inputs([1], [0]), outputs: OUTPUTS };
  const { request, sent } = streamedRequest(given, { now: () => clock.now() });
  await instance.execute([request]);
  await clock.settle();
  assert.equal(sent.length, 64);
  await clock.advance(0);
  await clock.advance(0);
  assert.equal(sent.length, 201);
});

Deno.test("repeat answers shapes that do not fit with an error", async () => {
  const clock = new FakeClock();
  await using instance = await createFixtureInstance(createRepeatBackend, repeatConfig(), clock);
  const given = { inputs: inputs([1, 2], [0]), outputs: OUTPUTS };
  const { request, sent } = streamedRequest(given, { now: () => clock.now() });
  const { outcomes } = await instance.execute([request]);
  const [outcome] = outcomes as readonly { error?: Error }[];
  assert.match(outcome?.error?.message ?? "", /IN and DELAY shape to match, got \[2\] and \[1\]/);
  assert.deepEqual(sent, []);
});

Deno.test("repeat refuses models that batch, and other tensors", async () => {
  const open = (config: ReturnType<typeof repeatConfig>) =>
    createFixtureInstance(createRepeatBackend, config, new FakeClock());
  await assert.rejects(
    open({ ...repeatConfig(), maxBatchSize: 4 }),
    /only supports models with max_batch_size == 0, got 4/,
  );
  const config = repeatConfig();
  config.input[1]!.dataType = DataType.TYPE_INT32;
  config.output.pop();
  await assert.rejects(
    open(config),
    /'DELAY' of TYPE_UINT32 .*, got TYPE_INT32 .*; expected output 'IDX' .*, got none/,
  );
});
