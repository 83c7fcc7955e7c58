import assert from "node:assert/strict";
import type { ExecuteOutcome, ExecuteRequest, ExecuteResponse } from "../../backends/backend.ts";
import type { InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { EngineFixture, type FakeModel, inferRequest } from "./engine_fixture.ts";

const DECOUPLED = { modelTransactionPolicy: { decoupled: true } };
const STREAMED: ExecuteOutcome = { streamed: true };

/** Releases of responses, by value. */
let released: number[] = [];

function response(value: number): ExecuteResponse {
  const data = new Uint8Array(Float32Array.of(value).buffer);
  const outputs = [{ name: "OUT", datatype: "FP32" as const, shape: [1, 1], data }];
  return { outputs, release: () => released.push(value) };
}

async function setUp(model: FakeModel) {
  released = [];
  const fixture = new EngineFixture({ m: { config: DECOUPLED, ...model } });
  assert.equal((await fixture.start()).ok, true);
  const { engine, clock } = fixture;
  const counts = () => {
    const { received, success, failures, inflight } = engine.metrics().versions[0]!;
    const failed = Object.values(failures).reduce((sum, count) => sum + count, 0);
    assert.equal(received, success + failed + inflight);
    return { success, inflight, canceled: failures.CANCELED, backend: failures.BACKEND };
  };
  return { engine, clock, counts, call: openCall(engine) };
}

/** Starts requests and notes what comes: `id:value`, errors as text, `!` behind what is final. */
function openCall(engine: EngineFixture["engine"]) {
  const log: string[] = [];
  const start = (
    id: string,
    { hold, signal, ...change }: Partial<InferRequest> & {
      hold?: () => Promise<void> | undefined;
      signal?: AbortSignal;
    } = {},
  ) => {
    const call: { end?: string } = {};
    engine.inferStream(inferRequest("m", { id, ...change }), ({ response, error, isFinal }) => {
      const data = response?.outputs[0]?.data;
      const value = data === undefined ? "" : new Float32Array(data.slice().buffer)[0];
      log.push(`${id}:${error?.message ?? value}${isFinal ? "!" : ""}`);
      if (response !== undefined) engine.releaseResponse(response);
      return hold?.();
    }, signal === undefined ? {} : { signal }).then(
      () => call.end = "resolved",
      (error: ServerError) => call.end = `${error.code} ${error.message}`,
    );
    return call;
  };
  return { log, start };
}

Deno.test("Engine.inferStream() hands on every response, and is over with the final one", async () => {
  let request!: ExecuteRequest;
  const { call, clock, counts } = await setUp({
    outcome: (each) => {
      request = each;
      each.send(response(1), false);
      return STREAMED;
    },
  });
  const first = call.start("a");
  await clock.advance(5);
  assert.deepEqual(call.log, ["a:1"]);
  assert.deepEqual(counts(), { success: 0, inflight: 1, canceled: 0, backend: 0 });
  request.send({ error: new ServerError("INTERNAL", "hiccup") }, false);
  request.send(undefined, false);
  request.send(response(2), false);
  await clock.advance(5);
  assert.equal(first.end, undefined);
  request.send(undefined, true);
  await clock.settle();
  assert.equal(first.end, "resolved");
  assert.deepEqual(call.log, ["a:1", "a:hiccup", "a:2", "a:!"]);
  assert.deepEqual(counts(), { success: 1, inflight: 0, canceled: 0, backend: 0 });
  assert.throws(() => request.send(response(3), false), TypeError);
  assert.deepEqual(released, [1, 2]);
});

Deno.test("Engine.inferStream() of an ordinary model gives exactly one final response", async () => {
  const { call, clock, counts } = await setUp({ config: {}, outcome: () => response(4) });
  const only = call.start("a");
  await clock.advance(1);
  assert.deepEqual(call.log, ["a:4!"]);
  assert.equal(only.end, "resolved");
  assert.equal(counts().success, 1);
});

Deno.test("Engine.infer() refuses decoupled models", async () => {
  const { engine } = await setUp({});
  await assert.rejects(engine.infer(inferRequest("m")), { code: "UNSUPPORTED", isRefusal: true });
  assert.equal(engine.isDecoupled("m", ""), true);
  assert.throws(() => engine.isDecoupled("n", ""), { code: "NOT_FOUND" });
});

Deno.test("Engine.infer() takes the one response of a model that sends it, and releases what is too much", async () => {
  for (const count of [0, 1, 2]) {
    const { engine, clock, counts } = await setUp({
      config: {},
      outcome: (request) => {
        for (let index = 0; index < count; index++) request.send(response(index), false);
        request.send(undefined, true);
        return STREAMED;
      },
    });
    const answer = engine.infer(inferRequest("m"));
    answer.catch(() => {});
    await clock.advance(1);
    if (count === 1) {
      engine.releaseResponse(await answer);
      assert.equal(counts().success, 1);
    } else {
      await assert.rejects(answer, { message: `expected a single response, got ${count}` });
      assert.equal(counts().backend, 1);
    }
    assert.equal(released.length, count);
  }
});

Deno.test("Engine.infer() takes the first of several responses when it is asked to", async () => {
  const { engine, clock, counts } = await setUp({
    config: {},
    outcome: (request) => {
      for (let index = 1; index <= 3; index++) request.send(response(index), false);
      request.send(undefined, true);
      return STREAMED;
    },
  });
  const answer = engine.infer(inferRequest("m"), { takesFirst: true });
  await clock.advance(1);
  const { outputs } = await answer;
  assert.equal(new Float32Array(outputs[0]!.data.slice().buffer)[0], 1);
  assert.deepEqual(released, [2, 3]);
  engine.releaseResponse(await answer);
  assert.deepEqual(released, [2, 3, 1]);
  assert.deepEqual(counts(), { success: 1, inflight: 0, canceled: 0, backend: 0 });
});

Deno.test("Engine.infer() counts a model that gives up for a client that has gone as cancelled", async () => {
  const controller = new AbortController();
  const { engine, clock, counts } = await setUp({
    config: {},
    executeMs: 10,
    outcome: (request) => {
      request.send(undefined, true);
      return STREAMED;
    },
  });
  const answer = engine.infer(inferRequest("m"), { signal: controller.signal });
  answer.catch(() => {});
  await clock.advance(5);
  controller.abort();
  await clock.advance(10);
  await assert.rejects(answer, { code: "CANCELLED" });
  assert.deepEqual(counts(), { success: 0, inflight: 0, canceled: 1, backend: 0 });
});

Deno.test("Engine.inferStream() ends with the error of an execution that fails after responses", async () => {
  const { call, clock, counts } = await setUp({
    outcome: (request) => {
      request.send(response(1), false);
      return { error: new ServerError("INTERNAL", "broke") };
    },
  });
  const failed = call.start("a");
  await clock.advance(1);
  assert.deepEqual(call.log, ["a:1", "a:broke!"]);
  assert.equal(failed.end, "resolved");
  assert.deepEqual(counts(), { success: 0, inflight: 0, canceled: 0, backend: 1 });
});

Deno.test("Engine.inferStream() rejects when nothing was sent before the failure", async () => {
  const { call, clock, counts } = await setUp({
    outcome: () => ({ error: new ServerError("UNAVAILABLE", "broke") }),
  });
  const failed = call.start("a");
  const refused = call.start("b", { inputs: [] });
  await clock.advance(1);
  assert.equal(failed.end, "UNAVAILABLE broke");
  assert.match(refused.end ?? "", /^INVALID_ARG .*expected 1 inputs but got 0/);
  assert.deepEqual(call.log, []);
  assert.equal(counts().backend, 1);
});

Deno.test("Engine.inferStream() takes no outcome beside the final response, and gives it back", async () => {
  const { call, clock, counts } = await setUp({
    outcome: (request) => {
      request.send(response(1), true);
      return response(2);
    },
  });
  const done = call.start("a");
  await clock.advance(1);
  assert.deepEqual(call.log, ["a:1!"]);
  assert.equal(done.end, "resolved");
  assert.deepEqual(released, [1, 2]);
  assert.equal(counts().success, 1);
});

Deno.test("Engine.inferStream() passes the wish of the receiver to wait on to the model", async () => {
  const gate = Promise.withResolvers<void>();
  let isHeld: Promise<void> | undefined;
  const { call, clock } = await setUp({
    outcome: (request) => {
      isHeld = request.send(response(1), false);
      request.send(undefined, true);
      return STREAMED;
    },
  });
  call.start("a", { hold: () => gate.promise });
  await clock.advance(1);
  assert.equal(isHeld, gate.promise);
});

Deno.test("Engine.inferStream() drops what comes after the client has gone; in flight until the model is done", async () => {
  let request!: ExecuteRequest;
  const { call, clock, counts } = await setUp({
    outcome: (each) => {
      request = each;
      each.send(response(1), false);
      return STREAMED;
    },
  });
  const controller = new AbortController();
  const gone = call.start("a", { signal: controller.signal, hold: () => new Promise(() => {}) });
  await clock.advance(1);
  controller.abort();
  assert.equal(request.signal!.aborted, true);
  assert.equal(request.send(response(2), false), undefined);
  assert.deepEqual(call.log, ["a:1"]);
  assert.deepEqual(released, [1, 2]);
  assert.equal(counts().inflight, 1, "the model still works, and reads its inputs");
  request.send(undefined, true);
  await clock.settle();
  assert.equal(gone.end, "resolved");
  assert.deepEqual(counts(), { success: 0, inflight: 0, canceled: 1, backend: 0 });
});

Deno.test("Engine.stop() waits for streams, but not longer than it is told to", async () => {
  let request!: ExecuteRequest;
  const outcome = (each: ExecuteRequest) => {
    request = each;
    return STREAMED;
  };
  for (const isEnding of [true, false]) {
    const { call, clock, engine } = await setUp({ outcome });
    const open = call.start("a");
    await clock.advance(1);
    const stopped = engine.stop(5000);
    await clock.advance(1000);
    if (isEnding) request.send(response(1), true);
    await clock.advance(10_000);
    assert.equal(await stopped, isEnding);
    assert.equal(open.end, isEnding ? "resolved" : undefined);
  }
});

Deno.test("preserve_ordering keeps all responses of a request before those of the next", async () => {
  const requests = new Map<string, ExecuteRequest>();
  const { call, clock, counts } = await setUp({
    config: {
      ...DECOUPLED,
      schedulingChoice: {
        case: "dynamicBatching",
        value: { preserveOrdering: true, preferredBatchSize: [4] },
      },
    },
    outcome: (request) => {
      requests.set(request.id, request);
      return STREAMED;
    },
  });
  for (const id of ["a", "b", "c"]) call.start(id);
  await clock.advance(1);
  call.start("d");
  await clock.advance(1);
  const send = (id: string, value: number, isFinal = false) =>
    requests.get(id)!.send(response(value), isFinal);
  assert.equal(send("b", 1), undefined, "one batch: holding it up could hold up the first");
  const held = send("d", 9);
  assert.notEqual(held, undefined, "another batch: it can wait");
  send("a", 1);
  send("c", 1, true);
  send("a", 2, true);
  assert.deepEqual(call.log, ["a:1", "a:2!", "b:1"]);
  assert.equal(counts().inflight, 3);
  requests.get("b")!.send(undefined, true);
  assert.deepEqual(call.log, ["a:1", "a:2!", "b:1", "b:!", "c:1!", "d:9"]);
  await held;
  assert.equal(send("d", 10, true), undefined);
  await clock.settle();
  assert.deepEqual(counts(), { success: 4, inflight: 0, canceled: 0, backend: 0 });
});

Deno.test("response_stats count what a decoupled model sent, by index", async () => {
  const { call, clock, engine } = await setUp({
    outcome: (request) => {
      const at = (delayMs: number, work: () => void) => void clock.setTimer(delayMs, work);
      at(10, () => request.send({ ...response(1), outputStartMs: clock.now() - 4 }, false));
      at(30, () => request.send({ error: new ServerError("INTERNAL", "no") }, false));
      at(35, () => request.send(undefined, true));
      return STREAMED;
    },
  });
  call.start("a");
  await clock.advance(100);
  const controller = new AbortController();
  call.start("b", { signal: controller.signal });
  await clock.advance(12);
  controller.abort();
  await clock.advance(100);
  const stats = engine.modelStatistics("m", "")[0]!;
  const shown = Object.entries(stats.responseStats).map(([index, kinds]) => [
    index,
    ...(["computeInfer", "computeOutput", "success", "fail", "emptyResponse", "cancel"] as const)
      .map((kind) => `${kinds[kind]!.count}/${Number(kinds[kind]!.ns) / 1e6}`),
  ]);
  assert.deepEqual(shown, [
    ["0", "2/12", "2/8", "2/20", "0/0", "0/0", "0/0"],
    ["1", "2/40", "0/0", "0/0", "2/40", "0/0", "0/0"],
    ["2", "1/5", "0/0", "0/0", "0/0", "1/5", "1/5"],
  ]);
  assert.equal(stats.inferenceStats!.success!.count, 1n);
  assert.equal(stats.inferenceStats!.success!.ns, 35_000_000n);
  assert.equal(stats.inferenceStats!.computeInfer!.ns, 35_000_000n);
});
