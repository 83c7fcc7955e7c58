import assert from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import type { ExecuteOutcome, ExecuteRequest } from "../backend.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { frame } from "../process/frame_port_fixture.ts";
import { streamedRequest } from "../send_fixture.ts";
import { FRAME } from "./isolated_wire.ts";
import { loopback } from "./loopback_fixture.ts";

const INPUT = {
  name: "A",
  datatype: "INT32",
  shape: [1],
  data: Uint8Array.of(1, 0, 0, 0),
} as const;
const GIVEN = { inputs: [INPUT], outputs: ["B"] };
const OUTPUT = { ...INPUT, name: "B", data: Uint8Array.of(5, 0, 0, 0) };

const request = (given: Partial<ExecuteRequest> = {}) => executeRequest({ ...GIVEN, ...given });
const answer = (outcomes: readonly ExecuteOutcome[]) =>
  Promise.resolve({ outcomes, inputEndMs: 0, outputStartMs: 0 });
const errorOf = (outcome: unknown) => (outcome as { error?: ServerError }).error;
const turn = () => new Promise((resolve) => setTimeout(resolve, 0));

Deno.test("execute() passes everything of a request, and the answers in order", async () => {
  const seen: ExecuteRequest[] = [];
  const { execute, executions } = loopback((requests) => {
    seen.push(...requests);
    return answer([
      { outputs: [OUTPUT], parameters: { whole: 2n ** 60n, half: 0.5, text: "t", truth: true } },
      { error: new ServerError("NOT_FOUND", "no such thing") },
    ]);
  });
  const given = {
    id: "seven",
    correlationId: 2n ** 63n,
    batchSize: 3,
    parameters: { a: 1n, b: "x", c: 1 },
    sequenceStart: true,
    sequenceEnd: false,
    priority: 2,
    timeoutUs: 12345,
  };
  const { outcomes } = await execute([request(given), request({ correlationId: "text" })]);
  const { signal: _signal, send: _send, ...fields } = seen[0]!;
  assert.deepEqual({ ...fields }, { ...GIVEN, ...given });
  assert.equal(seen[1]!.correlationId, "text");
  assert.deepEqual(outcomes[0], {
    outputs: [OUTPUT],
    parameters: { whole: 2n ** 60n, half: 0.5, text: "t", truth: true },
  });
  assert.equal(errorOf(outcomes[1])?.code, "NOT_FOUND");
  assert.equal(errorOf(outcomes[1])?.message, "no such thing");
  assert.equal(executions.liveCount, 0);
  assert.equal(executions.batchCount, 0);
});

Deno.test("execute() reports times of its own clock, in order", async () => {
  const { execute } = loopback(() => answer([{ outputs: [OUTPUT] }]));
  const { inputEndMs, outputStartMs, startMs } = await execute([request()]);
  assert.ok(0 < inputEndMs && inputEndMs <= outputStartMs && outputStartMs < 100);
  assert.equal(startMs, undefined);
});

Deno.test("what an instance throws fails all requests of the batch", async () => {
  const { execute } = loopback(() => Promise.reject(new ServerError("UNAVAILABLE", "busy")));
  const { outcomes } = await execute([request(), request()]);
  assert.deepEqual(outcomes.map((each) => errorOf(each)?.message), ["busy", "busy"]);
});

Deno.test("an outcome that is missing is an error of its request alone", async () => {
  const { execute } = loopback(() => answer([{ outputs: [OUTPUT] }]));
  const { outcomes } = await execute([request(), request()]);
  assert.ok("outputs" in outcomes[0]!);
  assert.equal(errorOf(outcomes[1])?.message, "the backend gave no outcome");
});

Deno.test("responses stream in order, no faster than they are taken", async () => {
  const count = 200;
  let sentCount = 0;
  const { execute, executions } = loopback((requests) => {
    void (async () => {
      for (let index = 0; index < count; index++) {
        sentCount++;
        await requests[0]!.send({ outputs: [OUTPUT] }, false);
      }
      requests[0]!.send(undefined, true);
    })();
    return answer([{ streamed: true }]);
  });
  const gate = Promise.withResolvers<void>();
  const streamed = streamedRequest(GIVEN, { now: () => 0, hold: () => gate.promise });
  const { outcomes } = await execute([streamed.request]);
  assert.deepEqual(outcomes, [{ streamed: true }]);
  await turn();
  assert.equal(sentCount, 64);
  assert.equal(streamed.sent.length, 1);
  gate.resolve();
  for (let round = 0; round < 100 && executions.liveCount > 0; round++) await turn();
  assert.equal(streamed.sent.length, count + 1);
  assert.ok(streamed.sent.at(-1)!.isFinal);
  assert.equal(executions.liveCount, 0);
});

Deno.test("a request that is rescheduled carries its states", async () => {
  const state = { ...OUTPUT, name: "STATE" };
  const { execute, executions } = loopback(() =>
    answer([{ streamed: true, reschedule: true, states: [state] }])
  );
  const { outcomes } = await execute([request()]);
  assert.deepEqual(outcomes, [{ streamed: true, reschedule: true, states: [state] }]);
  assert.equal(executions.liveCount, 0);
});

Deno.test("a client that has gone is seen by the instance", async () => {
  const { execute } = loopback((requests) =>
    new Promise((resolve) => {
      const error = new ServerError("CANCELLED", "gone");
      const end = () => resolve({ outcomes: [{ error }], inputEndMs: 0, outputStartMs: 0 });
      requests[0]!.signal!.addEventListener("abort", end);
    })
  );
  const abort = new AbortController();
  const running = execute([request({ signal: abort.signal })]);
  await turn();
  abort.abort();
  const { outcomes } = await running;
  assert.equal(errorOf(outcomes[0])?.code, "CANCELLED");
});

Deno.test("one that had gone before is seen, too", async () => {
  const { execute } = loopback(async (requests) => {
    await turn();
    const isGone = requests[0]!.signal!.aborted;
    return await answer([{ error: new ServerError("CANCELLED", String(isGone)) }]);
  });
  const abort = new AbortController();
  abort.abort();
  const { outcomes } = await execute([request({ signal: abort.signal })]);
  assert.equal(errorOf(outcomes[0])?.message, "true");
});

Deno.test("activities are noted in the trace of their request", async () => {
  const { execute } = loopback((requests) => {
    assert.equal(requests[0]!.trace?.context, "{}");
    requests[0]!.trace?.mark("BEGIN");
    return answer([{ outputs: [OUTPUT] }]);
  });
  const marks: string[] = [];
  const trace = { context: "{}", mark: (activity: string) => void marks.push(activity) };
  await execute([request({ trace })]);
  assert.deepEqual(marks, ["BEGIN"]);
});

Deno.test("the end of a process fails what it ran, and gives back what waited behind", async () => {
  const { execute, executions, cut } = loopback(() => answer([{ outputs: [OUTPUT] }]));
  cut();
  const streamed = streamedRequest(GIVEN, { now: () => 0 });
  const running = execute([streamed.request]);
  const waiting = execute([request()]);
  executions.failAll(new ServerError("INTERNAL", "it was ended by SIGSEGV"));
  assert.equal(errorOf((await running).outcomes[0])?.message, "it was ended by SIGSEGV");
  assert.equal(await waiting, undefined);
  assert.equal(executions.liveCount, 0);
  assert.equal(executions.batchCount, 0);
});

const RESULT = { o: [["B", "INT32", [1], -1, 0, 4]] };
const TIMES = [3, 1, 2];

for (
  const [what, json, pattern] of [
    ["no list", { u: TIMES }, /Expected 1 outcomes/],
    ["too many outcomes", { r: [RESULT, RESULT], u: TIMES }, /Expected 1 outcomes/],
    ["no times", { r: [RESULT] }, /Expected three times/],
    ["times that are none", { r: [RESULT], u: [1, 2, "x"] }, /Expected three times/],
    [
      "a tensor of another size",
      { r: [{ o: [["B", "INT32", [2], -1, 0, 4]] }], u: TIMES },
      /8 expe/,
    ],
    [
      "a tensor behind its frame",
      { r: [{ o: [["B", "INT32", [1], -1, 2, 4]] }], u: TIMES },
      /ends beh/,
    ],
    [
      "a datatype nobody knows",
      { r: [{ o: [["B", "INT7", [1], -1, 0, 4]] }], u: TIMES },
      /datatype/,
    ],
    ["a shape that is none", { r: [{ o: [["B", "INT32", [-1], -1, 0, 4]] }], u: TIMES }, /shape/],
    [
      "memory that is not shared",
      { r: [{ o: [["B", "INT32", [1], 7, 0, 4]] }], u: TIMES },
      /shared/,
    ],
    ["a code nobody knows", { r: [{ e: ["BAD", "text"] }], u: TIMES }, /code of an error/],
    ["parameters that are none", { r: [{ ...RESULT, p: "[1]" }], u: TIMES }, /JSON object/],
    ["nothing", { r: [null], u: TIMES }, /Expected an outcome/],
  ] as const
) {
  Deno.test(`a process that answers with ${what} is broken`, async () => {
    const { execute, executions, cut } = loopback(() => answer([]));
    cut();
    const running = execute([request()]);
    const payload = Uint8Array.of(5, 0, 0, 0);
    assert.throws(() => executions.executed(frame(FRAME.executed, 1, json, payload)), pattern);
    executions.failAll(new ServerError("INTERNAL", "broken"));
    assert.equal(errorOf((await running).outcomes[0])?.message, "broken");
  });
}

Deno.test("an error that tells of a lost device is told before the end of its batch", async () => {
  const text = "CUDA failure 700: an illegal memory access was encountered ; GPU=0";
  const { execute, fromChild } = loopback(() =>
    answer([{ error: new ServerError("INTERNAL", text) }])
  );
  const { outcomes } = await execute([request()]);
  assert.equal(errorOf(outcomes[0])?.message, text);
  assert.deepEqual(fromChild, [FRAME.deviceLost, FRAME.executed]);
});
