import assert from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import type { ExecuteReport, ExecuteRequest } from "../backend.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { streamedRequest } from "../send_fixture.ts";
import { fakePort, frame } from "../process/frame_port_fixture.ts";
import { RunningBatches } from "./running_batches.ts";
import type { RequestHead } from "../process/request_head.ts";
import { StubMemory } from "../process/stub_memory.ts";
import { FRAME } from "./stub_wire.ts";

const LIMITS = { initialByteSize: 4096, growthByteSize: 4096, maxByteSize: 8192 };
const INPUT = {
  name: "A",
  datatype: "INT32",
  shape: [1],
  data: Uint8Array.of(1, 0, 0, 0),
} as const;
const RESULT = { o: [["B", "INT32", [1], -1, 0, 4]] };
const DATA = Uint8Array.of(5, 0, 0, 0);

function open() {
  const main = fakePort();
  const aside = fakePort();
  const clock = { nowMs: 0 };
  const memory = new StubMemory(LIMITS);
  const batches = new RunningBatches({ main, aside, memory, now: () => clock.nowMs += 0.01 });
  const wires = () => main.sent.at(-1)!.body.r as RequestHead[];
  const execute = (requests: readonly ExecuteRequest[]) =>
    batches.execute(requests) as Promise<ExecuteReport>;
  return { batches, main, aside, memory, wires, execute, clock };
}

const request = () => executeRequest({ inputs: [INPUT], outputs: ["B"] });
const errorOf = (outcome: unknown) => (outcome as { error?: ServerError }).error;

Deno.test("execute() sends one frame for a batch, and answers with its results in order", async () => {
  const { batches, execute, main, wires } = open();
  const running = execute([request(), request()]);
  assert.equal(main.sent.length, 1);
  assert.equal(main.sent[0]!.kind, FRAME.execute);
  assert.deepEqual(wires().map(({ n }) => n[0]), [
    ["A", "INT32", [1], -1, 0, 4],
    ["A", "INT32", [1], -1, 8, 4],
  ]);
  const r = [RESULT, { e: [3, "bad"] }];
  batches.executed(frame(FRAME.executed, main.sent[0]!.id, { r }, DATA));
  const { outcomes, inputEndMs, outputStartMs } = await running;
  assert.deepEqual((outcomes[0] as { outputs: unknown[] }).outputs, [
    { name: "B", datatype: "INT32", shape: [1], data: DATA },
  ]);
  assert.equal(errorOf(outcomes[1])?.code, "INVALID_ARG");
  assert.ok(inputEndMs < outputStartMs);
  assert.equal(batches.liveCount, 0);
});

Deno.test("an error of a batch goes to the requests that have no answer yet", async () => {
  const { batches, execute, main, wires } = open();
  const streamed = streamedRequest({ inputs: [INPUT], outputs: ["B"] }, { now: () => 0 });
  const running = execute([streamed.request, request()]);
  batches.sent(frame(FRAME.send, wires()[0]!.i, { r: RESULT, l: true }, DATA));
  batches.executed(frame(FRAME.executed, main.sent[0]!.id, { error: "ValueError" }));
  const { outcomes } = await running;
  assert.deepEqual(outcomes[0], { streamed: true });
  assert.equal(errorOf(outcomes[1])?.message, "ValueError");
  assert.equal(streamed.sent.length, 1);
});

Deno.test("responses are sent while the batch runs and afterwards", async () => {
  const { batches, execute, main, wires } = open();
  const { request: first, sent } = streamedRequest(
    { inputs: [INPUT], outputs: ["B"] },
    { now: () => 0 },
  );
  const running = execute([first]);
  const number = wires()[0]!.i;
  batches.sent(frame(FRAME.send, number, { r: RESULT }, DATA));
  batches.executed(frame(FRAME.executed, main.sent[0]!.id, { r: [null] }));
  assert.deepEqual((await running).outcomes, [{ streamed: true }]);
  batches.sent(frame(FRAME.send, number, { r: RESULT }, DATA));
  assert.equal(batches.liveCount, 1);
  batches.sent(frame(FRAME.send, number, { l: true }));
  batches.sent(frame(FRAME.send, number, { r: RESULT }, DATA));
  assert.deepEqual(sent.map(({ isFinal }) => isFinal), [false, false, true]);
  assert.equal(batches.liveCount, 0);
});

Deno.test("a request that the model dropped fails instead of waiting for ever", async () => {
  const { batches, execute, main, wires } = open();
  const { request: first, sent } = streamedRequest(
    { inputs: [INPUT], outputs: ["B"] },
    { now: () => 0 },
  );
  const running = execute([first]);
  const number = wires()[0]!.i;
  batches.executed(frame(FRAME.executed, main.sent[0]!.id, { r: [null] }));
  await running;
  batches.dropped(frame(FRAME.dropped, number));
  assert.match(sent[0]!.error!.message, /without a response/);
  assert.equal(sent[0]!.isFinal, true);
});

Deno.test("a request that is rescheduled gets a new number in its next batch", async () => {
  const { batches, execute, main, wires } = open();
  const given = request();
  const running = execute([given]);
  const number = wires()[0]!.i;
  batches.executed(frame(FRAME.executed, main.sent[0]!.id, { r: [null], k: [0] }));
  assert.deepEqual((await running).outcomes, [{ streamed: true, reschedule: true }]);
  void execute([given]);
  assert.notEqual(wires()[0]!.i, number);
  batches.failAll(new ServerError("INTERNAL", "end"));
});

Deno.test("the end of the process fails running batches and open streams", async () => {
  const { batches, execute, main, wires } = open();
  const streamed = streamedRequest({ inputs: [INPUT], outputs: ["B"] }, { now: () => 0 });
  const first = execute([streamed.request]);
  batches.executed(frame(FRAME.executed, main.sent[0]!.id, { r: [null] }));
  await first;
  assert.equal(wires().length, 1);
  const second = execute([request()]);
  batches.failAll(new ServerError("INTERNAL", "dead"));
  assert.equal(errorOf((await second).outcomes[0])?.message, "dead");
  assert.equal(streamed.sent[0]!.error?.message, "dead");
  assert.equal(batches.liveCount, 0);
});

Deno.test("an input that finds no room fails its request, the others run", async () => {
  const { batches, execute, main, memory, wires } = open();
  const isShared = memory.offer() !== undefined;
  memory.agree({ pid: Deno.pid, isShared });
  if (!isShared) return;
  const data = new Uint8Array(100_000);
  const large = executeRequest({
    inputs: [{ name: "A", datatype: "UINT8", shape: [100_000], data }],
    outputs: ["B"],
  });
  const running = execute([large, request()]);
  assert.equal(wires().length, 1);
  batches.executed(frame(FRAME.executed, main.sent[0]!.id, { r: [RESULT] }, DATA));
  const { outcomes } = await running;
  assert.match(errorOf(outcomes[0])!.message, /Failed to increase the shared memory pool size/);
  assert.ok("outputs" in outcomes[1]!);
  memory.close();
});

Deno.test("an abort is told to the process, also one before the batch", () => {
  const { batches, execute, aside, wires } = open();
  const controller = new AbortController();
  controller.abort();
  const given = executeRequest({ inputs: [], outputs: ["B"], signal: controller.signal });
  void execute([given]);
  assert.deepEqual(aside.sent.map(({ kind, id }) => [kind, id]), [[
    FRAME.cancelled,
    wires()[0]!.i,
  ]]);
  batches.failAll(new ServerError("INTERNAL", "end"));
});

const LIES: readonly [string, Record<string, unknown>][] = [
  ["too few results", { r: [] }],
  ["too many results", { r: [null, null] }],
  ["no list of results", { r: "x" }],
  ["a result that is none", { r: [5] }],
  ["rescheduled that is no list", { r: [null], k: 1 }],
];

for (const [what, json] of LIES) {
  Deno.test(`executed() refuses ${what}, and the batch still runs`, async () => {
    const { batches, execute, main } = open();
    const running = execute([request()]);
    const { id } = main.sent[0]!;
    assert.throws(() => batches.executed(frame(FRAME.executed, id, json)), RangeError);
    assert.throws(() => batches.executed(frame(FRAME.executed, id + 1000, { r: [] })), RangeError);
    batches.failAll(new ServerError("INTERNAL", "end"));
    assert.equal(errorOf((await running).outcomes[0])?.message, "end");
  });
}

Deno.test("a batch too large for one frame fails, and its memory is free again", async () => {
  const large = { initialByteSize: 1 << 20, growthByteSize: 1 << 20, maxByteSize: 1 << 22 };
  const memory = new StubMemory(large);
  const offered = memory.offer();
  memory.agree({ pid: Deno.pid, isShared: true });
  const send = () => {
    throw new RangeError("too large");
  };
  const batches = new RunningBatches({ main: { send }, aside: fakePort(), memory, now: () => 0 });
  const data = new Uint8Array(100_000);
  const input = { name: "A", datatype: "UINT8", shape: [data.length], data } as const;
  const report = await batches.execute([executeRequest({ inputs: [input], outputs: ["B"] })]);
  assert.equal(errorOf(report!.outcomes[0])?.message, "too large");
  assert.deepEqual([batches.liveCount, memory.usedCount], [0, 0]);
  // Without memory files, as on other systems, there was none to begin with.
  assert.ok(offered === undefined || offered >= 0);
  memory.close();
});

Deno.test("a request goes ahead only behind short executions, and when it is small", async () => {
  const { batches, execute, main, clock } = open();
  const answer = (index: number, u: number) =>
    batches.executed(frame(FRAME.executed, main.sent[index]!.id, { r: [RESULT], u }, DATA));
  const first = execute([request()]);
  assert.equal(batches.takesAhead(request()), false);
  answer(0, 100);
  await first;
  const running = [execute([request()])];
  assert.equal(batches.takesAhead(request()), true);
  const large = { ...INPUT, shape: [5000], data: new Uint8Array(20_000) };
  assert.equal(
    batches.takesAhead(executeRequest({ inputs: [large], outputs: [] })),
    false,
  );
  while (batches.takesAhead(request())) running.push(execute([request()]));
  assert.equal(running.length, 8);
  for (let index = 1; index <= 8; index++) answer(index, 100);
  await Promise.all(running);
  const slow = execute([request()]);
  clock.nowMs += 5;
  assert.equal(batches.takesAhead(request()), false);
  answer(9, 50_000);
  await slow;
  void execute([request()]);
  assert.equal(batches.takesAhead(request()), false);
  batches.failAll(new ServerError("INTERNAL", "end"));
});

Deno.test("what a batch waited for others is no time of its own", async () => {
  const { batches, execute, main, clock } = open();
  const first = execute([request()]);
  const second = execute([request()]);
  const begunMs = clock.nowMs;
  clock.nowMs += 10;
  for (const { id } of main.sent) {
    batches.executed(frame(FRAME.executed, id, { r: [RESULT], u: 3000 }, DATA));
  }
  assert.equal((await first).startMs, undefined);
  const { startMs, inputEndMs, outputStartMs } = await second;
  assert.ok(startMs! > begunMs && startMs === inputEndMs);
  assert.ok(outputStartMs - startMs >= 3 && outputStartMs - startMs < 5);
});

Deno.test("a batch that waited behind the one that ended the process has not begun", async () => {
  const { batches, execute, aside } = open();
  const controller = new AbortController();
  const first = execute([request()]);
  const second = execute([
    executeRequest({ inputs: [INPUT], outputs: ["B"], signal: controller.signal }),
  ]);
  assert.equal(batches.hasAhead, true);
  batches.failAll(new ServerError("INTERNAL", "dead"));
  assert.equal(errorOf((await first).outcomes[0])?.message, "dead");
  assert.equal(await second, undefined);
  assert.equal(batches.liveCount, 0);
  controller.abort();
  assert.equal(aside.sent.length, 0);
});
