import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { DataType, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { FakeClock } from "../../server/core/fake_clock.ts";
import { filledIntegers } from "../integer_tensor.ts";
import { streamedRequest } from "../send_fixture.ts";
import { createFixtureInstance } from "../sequence_fixture.ts";
import { createSquareBackend } from "./square_backend.ts";

async function run(
  count: number,
  parameters: Record<string, string> = {},
  control: { abortAtMs?: number } = {},
) {
  const clock = new FakeClock();
  const tensor = { dataType: DataType.TYPE_INT32, dims: [1n] };
  const config = create(ModelConfigSchema, {
    name: "m",
    input: [{ name: "IN", ...tensor }],
    output: [{ name: "OUT", ...tensor }],
    parameters: Object.fromEntries(
      Object.entries(parameters).map(([key, stringValue]) => [key, { stringValue }]),
    ),
  });
  await using instance = await createFixtureInstance(createSquareBackend, config, clock);
  const controller = new AbortController();
  const given = {
    inputs: [filledIntegers("IN", [1], count)],
    outputs: ["OUT"],
    signal: controller.signal,
  };
  const { request, sent } = streamedRequest(given, { now: () => clock.now() });
  const { outcomes } = await instance.execute([request]);
  if (control.abortAtMs !== undefined) {
    clock.setTimer(control.abortAtMs, () => controller.abort());
  }
  await clock.advance(10_000);
  assert.equal(clock.timerCount, 0);
  return { outcomes, sent };
}

Deno.test("square answers n with n times n and the final flag", async () => {
  const { outcomes, sent } = await run(3);
  assert.deepEqual(outcomes, [{ streamed: true }]);
  assert.deepEqual(sent.map(({ values }) => values), [[3], [3], [3], undefined]);
  assert.deepEqual(sent.map(({ isFinal }) => isFinal), [false, false, false, true]);
  assert.deepEqual((await run(0)).sent, [{ atMs: 0, isFinal: true }]);
});

Deno.test("square waits before making and before sending, fails some and leaves some out", async () => {
  const { sent } = await run(5, {
    CUSTOM_INFER_DELAY_NS: "400000000",
    CUSTOM_OUTPUT_DELAY_NS: "200000000",
    CUSTOM_FAIL_COUNT: "2",
    CUSTOM_EMPTY_COUNT: "1",
  });
  assert.deepEqual(sent.map(({ atMs, values }) => [atMs, values]), [
    [600, [5]],
    [1200, [5]],
    [1800, undefined],
    [2400, undefined],
    [2800, undefined],
  ]);
  assert.equal(sent[2]?.error?.message, "simulated failure");
  assert.equal(sent[2]?.error?.code, "UNKNOWN");
  assert.deepEqual(sent.map(({ isFinal }) => isFinal), [false, false, false, false, true]);
});

Deno.test("square stops when the client has gone, after its delay for that", async () => {
  const { sent } = await run(
    100,
    { CUSTOM_INFER_DELAY_NS: "1000000000", CUSTOM_CANCEL_DELAY_NS: "500000000" },
    { abortAtMs: 1500 },
  );
  assert.deepEqual(sent, [
    { atMs: 1000, values: [100], isFinal: false },
    { atMs: 2000, values: [100], isFinal: false },
    { atMs: 2500, isFinal: true },
  ]);
});

Deno.test("square refuses a number below zero", async () => {
  const { outcomes, sent } = await run(-1);
  assert.match(
    (outcomes as readonly { error?: Error }[])[0]?.error?.message ?? "",
    /from 0 on, got -1/,
  );
  assert.deepEqual(sent, []);
});
