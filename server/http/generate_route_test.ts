import assert from "node:assert/strict";
import type { InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type { InferOptions, ResponseReceiver } from "../core/inference_api.ts";
import { Cancellation } from "../transport/cancellation.ts";
import type { HttpResponse } from "../transport/transport.ts";
import { createHttpHandler } from "./http_server.ts";
import { DEFAULT_HTTP_OPTIONS } from "./http_options.ts";
import { InMemoryFacade, memoryModel, memoryRequest } from "./in_memory_facade.ts";

const WRONG_COUNT = {
  error: "generate expects model to produce exactly 1 response, use generate stream for model " +
    "that generates various number of responses",
};

interface Started {
  readonly receive: ResponseReceiver;
  readonly options: InferOptions;
  settle(): void;
  fail(error: ServerError): void;
}

function setUp(endpoint: "generate" | "generate_stream") {
  const facade = new InMemoryFacade([memoryModel("llm", { decoupled: true })]);
  let started!: Started;
  facade.onStream = (_request, receive, options = {}) =>
    new Promise((settle, fail) => started = { receive, options, settle, fail });
  const handler = createHttpHandler(facade, DEFAULT_HTTP_OPTIONS);
  const signal = new Cancellation();
  const request = memoryRequest("POST", `/v2/models/llm/${endpoint}`, { body: `{"IN0":[1,2]}` });
  const answer = Promise.resolve(handler.handle({ ...request, signal }));
  return { facade, started, signal, answer, handler };
}

function response(value: number): InferResponse {
  const data = new Uint8Array(Int32Array.of(value).buffer);
  const outputs = [{ name: "OUT", datatype: "INT32" as const, shape: [1], data }];
  return { modelName: "llm", modelVersion: "1", id: "", parameters: {}, outputs };
}

async function textOf({ body }: HttpResponse): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const part of body ?? []) text += decoder.decode(part, { stream: true });
  return text;
}

function event(value: number): string {
  return `data: {"OUT":${value},"model_name":"llm","model_version":"1"}\n\n`;
}

Deno.test("generate answers with the one response, also when the final flag comes alone", async () => {
  const { facade, started, answer, handler } = setUp("generate");
  started.receive({ response: response(7), isFinal: false });
  started.receive({ isFinal: true });
  started.settle();
  const { status, ...rest } = await answer;
  assert.equal(status, 200);
  assert.deepEqual(JSON.parse(await textOf({ status, ...rest })), {
    OUT: 7,
    model_name: "llm",
    model_version: "1",
  });
  assert.equal(facade.released.length, 1);
  handler[Symbol.dispose]();
});

Deno.test("generate refuses none and several responses with the status of the first", async () => {
  const none = setUp("generate");
  none.started.receive({ isFinal: true });
  none.started.settle();
  const empty = await none.answer;
  assert.equal(empty.status, 200);
  assert.deepEqual(JSON.parse(await textOf(empty)), WRONG_COUNT);
  const several = setUp("generate");
  several.started.receive({ response: response(1), isFinal: false });
  several.started.receive({ response: response(2), isFinal: true });
  several.started.settle();
  const answer = await several.answer;
  assert.equal(answer.status, 200);
  assert.deepEqual(JSON.parse(await textOf(answer)), WRONG_COUNT);
  assert.equal(several.started.options.signal!.aborted, true, "the rest is for nobody");
  assert.equal(several.facade.released.length, 2);
});

Deno.test("generate answers an error as the only response with its status", async () => {
  const { started, answer } = setUp("generate");
  started.receive({ error: new ServerError("INTERNAL", "stopped"), isFinal: true });
  started.settle();
  const { status, ...rest } = await answer;
  assert.equal(status, 500);
  assert.deepEqual(JSON.parse(await textOf({ status, ...rest })), { error: "stopped" });
});

Deno.test("generate_stream sends one event per response as it comes, none for a flag alone", async () => {
  const { started, answer } = setUp("generate_stream");
  started.receive({ response: response(1), isFinal: false });
  const { status, headers, body } = await answer;
  assert.equal(status, 200);
  assert.deepEqual(headers, [["content-type", "text/event-stream; charset=utf-8"]]);
  const parts = (body as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]();
  const text = async () => new TextDecoder().decode((await parts.next()).value);
  assert.equal(await text(), event(1));
  started.receive({ error: new ServerError("INTERNAL", "hiccup"), isFinal: false });
  assert.equal(await text(), `data: {"error":"hiccup"}\n\n`);
  started.receive({ response: response(2), isFinal: false });
  started.receive({ isFinal: true });
  started.settle();
  assert.equal(await text(), event(2));
  assert.equal((await parts.next()).done, true);
});

Deno.test("generate_stream keeps the order although a large response takes longer to encode", async () => {
  const { facade, started, answer, handler } = setUp("generate_stream");
  const data = new Uint8Array(400_000);
  const large = { name: "OUT", datatype: "INT32" as const, shape: [100_000], data };
  started.receive({ response: { ...response(0), outputs: [large] }, isFinal: false });
  started.receive({ response: response(1), isFinal: false });
  started.receive({ error: new ServerError("INTERNAL", "last"), isFinal: true });
  started.settle();
  const events = (await textOf(await answer)).split("\n\n");
  assert.equal(
    events[0]!.length,
    "data: ".length + JSON.stringify({
      OUT: Array.from({ length: 100_000 }, () => 0),
      model_name: "llm",
      model_version: "1",
    }).length,
  );
  assert.deepEqual(events.slice(1), [event(1).trim(), `data: {"error":"last"}`, ""]);
  assert.equal(facade.released.length, 2);
  handler[Symbol.dispose]();
});

Deno.test("generate reads and answers large bodies off the event loop", async () => {
  const facade = new InMemoryFacade([memoryModel("llm", { decoupled: true })]);
  using handler = createHttpHandler(facade, DEFAULT_HTTP_OPTIONS);
  const body = JSON.stringify({ IN0: Array.from({ length: 400_000 }, (_, index) => index) });
  const answer = await handler.handle(
    memoryRequest("POST", "/v2/models/llm/generate", { body: body + " ".repeat(1_000_000) }),
  );
  assert.equal(answer.status, 200);
  assert.equal(JSON.parse(await textOf(answer)).OUT0[399_999], 399_999);
  const broken = await handler.handle(
    memoryRequest("POST", "/v2/models/llm/generate", { body: `{"IN0":[${"1,".repeat(1_000_000)}` }),
  );
  assert.equal(broken.status, 400);
});

Deno.test("generate_stream takes the status from the first response", async () => {
  const cases = [
    [{ error: new ServerError("UNAVAILABLE", "busy"), isFinal: true }, 503],
    [{ isFinal: true }, 200],
  ] as const;
  for (const [message, expected] of cases) {
    const { started, answer } = setUp("generate_stream");
    started.receive(message);
    started.settle();
    const { status, ...rest } = await answer;
    assert.equal(status, expected);
    const text = await textOf({ status, ...rest });
    assert.equal(text, "error" in message ? `data: {"error":"busy"}\n\n` : "");
  }
});

Deno.test("generate_stream answers what no model had as plain JSON, what one failed as an event", async () => {
  for (const isRefusal of [true, false]) {
    const { started, answer } = setUp("generate_stream");
    started.fail(new ServerError("INVALID_ARG", "bad", { isRefusal }));
    const { status, headers, ...rest } = await answer;
    assert.equal(status, 400);
    const type = isRefusal ? "application/json" : "text/event-stream; charset=utf-8";
    assert.deepEqual(headers, [["content-type", type]]);
    const text = await textOf({ status, ...rest });
    assert.equal(text, isRefusal ? `{"error":"bad"}` : `data: {"error":"bad"}\n\n`);
  }
});

Deno.test("generate_stream cancels the model and lets it go on when the client has gone", async () => {
  for (const how of ["abort", "return", "before the start"]) {
    const { started, answer, signal } = setUp("generate_stream");
    if (how === "before the start") {
      signal.abort();
      await answer;
      assert.equal(started.options.signal!.aborted, true);
      continue;
    }
    started.receive({ response: response(1), isFinal: false });
    const { body } = await answer;
    let wait: Promise<void> | undefined;
    let count = 0;
    while (wait === undefined && count++ < 100_000) {
      wait = started.receive({ response: response(count), isFinal: false }) ?? undefined;
    }
    assert.ok(count < 10_000, "a model is asked to wait for the client");
    if (how === "abort") signal.abort();
    else await (body as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]().return!();
    await wait;
    assert.equal(started.options.signal!.aborted, true);
    assert.equal(started.receive({ response: response(0), isFinal: true }), undefined);
    assert.equal(await textOf(await answer), "");
  }
});
