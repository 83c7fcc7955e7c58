import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import {
  ModelInferRequestSchema,
  ModelStreamInferResponseSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { FakeClock } from "../core/fake_clock.ts";
import { DEFAULT_GRPC_OPTIONS, type GrpcOptions } from "./grpc_options.ts";
import { createGrpcHandler } from "./grpc_server.ts";
import { echoResponse, type HeldStream, MemoryApi } from "./memory_api.ts";
import { MemoryStream } from "./memory_stream.ts";

function setUp(
  headers: Record<string, string> = {},
  { method = "ModelStreamInfer", ...options }: Partial<GrpcOptions> & { method?: string } = {},
) {
  const api = new MemoryApi();
  api.decoupled = true;
  const clock = new FakeClock();
  const setTimer = (delayMs: number, callback: () => void) => clock.setTimer(delayMs, callback);
  const handler = createGrpcHandler(api, { ...DEFAULT_GRPC_OPTIONS, setTimer, ...options });
  const stream = new MemoryStream(`/inference.GRPCInferenceService/${method}`, headers);
  handler.open(stream);
  const send = (held: HeldStream, isFinal = false) => {
    api.openResponses++;
    return held.receive({ response: echoResponse(held.request), isFinal });
  };
  return { api, clock, stream, send };
}

function request(id: string, init: MessageInitShape<typeof ModelInferRequestSchema> = {}) {
  return toBinary(
    ModelInferRequestSchema,
    create(ModelInferRequestSchema, {
      modelName: "echo",
      id,
      inputs: [{ name: "X", datatype: "INT8", shape: [4n] }],
      rawInputContents: [new Uint8Array([1, 2, 3, 4])],
      ...init,
    }),
  );
}

/** What was written: id, kind and final flag of each message. */
function written(stream: MemoryStream): string[] {
  return stream.sent.map((message) => {
    const { errorMessage, inferResponse } = fromBinary(
      ModelStreamInferResponseSchema,
      message.subarray(5),
    );
    const { id, outputs, parameters } = inferResponse!;
    const isFinal = parameters.triton_final_response?.parameterChoice.value;
    const kind = errorMessage || (outputs.length > 0 ? "data" : "empty");
    return `${id}:${kind}:${isFinal}`;
  });
}

const EMPTY_FINAL = {
  parameters: {
    triton_enable_empty_final_response: {
      parameterChoice: { case: "boolParam" as const, value: true },
    },
  },
};

Deno.test("ModelStreamInfer writes decoupled responses as they come, each with its final flag", async () => {
  const { api, clock, stream, send } = setUp();
  stream.message(request("a"));
  stream.message(request("b"));
  stream.end();
  const [a, b] = api.streams;
  send(b!);
  send(a!);
  send(b!, true);
  b!.settle();
  a!.receive({ isFinal: true });
  await clock.settle();
  assert.equal(stream.trailers, undefined);
  a!.settle();
  assert.deepEqual(await stream.finished(), { "grpc-status": "0" });
  assert.deepEqual(written(stream), ["b:data:false", "a:data:false", "b:data:true"]);
  assert.equal(stream.unreleased, 0);
  assert.equal(api.openResponses, 0);
});

Deno.test("ModelStreamInfer writes a final flag that comes alone only when it was asked for", async () => {
  const { api, stream, send } = setUp();
  stream.message(request("a", EMPTY_FINAL));
  stream.message(request("b"));
  stream.end();
  const [a, b] = api.streams;
  send(a!);
  a!.receive({ isFinal: true });
  b!.receive({ isFinal: true });
  a!.settle();
  b!.settle();
  assert.deepEqual(await stream.finished(), { "grpc-status": "0" });
  assert.deepEqual(written(stream), ["a:data:false", "a:empty:true"]);
});

Deno.test("ModelStreamInfer tells errors of a decoupled request and goes on", async () => {
  const { api, stream, send } = setUp();
  stream.message(request("a"));
  stream.message(request("b"));
  stream.message(request("c"));
  stream.message(request("d", { parameters: { timeout: {} } }));
  stream.end();
  const [a, b, c] = api.streams;
  assert.equal(api.streams.length, 3, "what cannot be decoded never reaches the core");
  a!.receive({ error: new ServerError("INTERNAL", "hiccup"), isFinal: false });
  send(a!, true);
  a!.settle();
  b!.fail(new ServerError("INTERNAL", "refused", { isRefusal: true }));
  c!.fail(new ServerError("UNAVAILABLE", "late"));
  assert.deepEqual(await stream.finished(), { "grpc-status": "0" });
  assert.deepEqual(written(stream), [
    "d:invalid value type for 'timeout' parameter, expected int64_param.:undefined",
    "a:hiccup:false",
    "a:data:true",
    "b:refused:undefined",
    "c:late:true",
  ]);
  assert.equal(stream.unreleased, 0);
});

Deno.test("ModelStreamInfer with triton_grpc_error ends after what was sent, and cancels the rest", async () => {
  const { api, clock, stream, send } = setUp({ "triton_grpc_error": "true" });
  stream.message(request("a"));
  stream.message(request("b"));
  const [a, b] = api.streams;
  send(a!);
  a!.receive({ error: new ServerError("NOT_FOUND", "bang"), isFinal: true });
  assert.deepEqual(await stream.finished(), { "grpc-status": "5", "grpc-message": "bang" });
  assert.equal(b!.options.signal!.aborted, true);
  send(b!);
  a!.settle();
  b!.settle();
  await clock.settle();
  assert.deepEqual(written(stream), ["a:data:false"]);
  assert.equal(stream.unreleased, 0);
  assert.equal(api.openResponses, 0);
});

Deno.test("ModelStreamInfer asks models to wait for a slow client, and lets them go when it reads or has gone", async () => {
  for (const end of ["flush", "disconnect"] as const) {
    const { api, clock, stream, send } = setUp();
    stream.message(request("a"));
    const [a] = api.streams;
    stream.writable = false;
    let count = 0;
    let isWaiting: Promise<void> | undefined;
    while (isWaiting === undefined && count < 1000) {
      isWaiting = send(a!);
      count++;
    }
    assert.equal(count, 64);
    let isGoingOn = false;
    isWaiting!.then(() => isGoingOn = true);
    await clock.settle();
    assert.equal(isGoingOn, false);
    stream[end]();
    await clock.settle();
    assert.equal(isGoingOn, true);
    send(a!, true);
    a!.settle();
    await clock.settle();
    assert.equal(api.openResponses, 0);
    assert.equal(stream.unreleased, 0);
  }
});

Deno.test("ModelStreamInfer bounds what all requests of a stream have waiting", async () => {
  const { api, clock, stream, send } = setUp({}, { maxStreamRequests: 1000 });
  const ids = Array.from({ length: 20 }, (_, index) => String(index));
  for (const id of ids) stream.message(request(id));
  stream.writable = false;
  for (let turn = 0; turn < 26; turn++) for (const held of api.streams) void send(held);
  assert.notEqual(send(api.streams[0]!), undefined, "over 512 messages in all, 27 of this request");
  stream.disconnect();
  assert.equal(api.openResponses, 0);
  for (const held of api.streams) held.settle();
  await clock.settle();
  assert.equal(stream.unreleased, 0);
});

Deno.test("ModelStreamInfer ends when a model does not wait and too much is left unread", async () => {
  const { api, stream, send } = setUp();
  stream.message(request("a"));
  stream.writable = false;
  for (let count = 0; count < 40_000; count++) void send(api.streams[0]!);
  assert.equal((await stream.finished())["grpc-status"], "14");
  assert.equal(api.streams[0]!.options.signal!.aborted, true);
  assert.ok(stream.sent.length < 33_000);
});

Deno.test("ModelStreamInfer keeps the buffers of a request until it is over and its last message written", async () => {
  const { api, clock, stream, send } = setUp();
  stream.message(request("a"));
  stream.writable = false;
  send(api.streams[0]!, true);
  api.streams[0]!.settle();
  await clock.settle();
  assert.equal(stream.unreleased, 1);
  stream.flush();
  assert.equal(stream.unreleased, 0);
});

Deno.test("ModelInfer of a decoupled model is refused in its own words, whatever else is wrong", async () => {
  for (const init of [{}, { parameters: { timeout: {} } }]) {
    const { api, stream } = setUp({}, { method: "ModelInfer" });
    api.hold = true;
    stream.message(request("a", init));
    stream.end();
    api.held[0]?.fail(new ServerError("UNSUPPORTED", "a single response cannot be promised"));
    const trailers = await stream.finished();
    assert.equal(trailers["grpc-status"], "12");
    assert.equal(
      trailers["grpc-message"],
      "ModelInfer RPC doesn't support models with decoupled transaction policy",
    );
    assert.equal(stream.unreleased, 0);
  }
});
