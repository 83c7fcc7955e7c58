import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import {
  ModelInferRequestSchema,
  ModelStreamInferResponseSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { FakeClock } from "../core/fake_clock.ts";
import { DEFAULT_GRPC_OPTIONS, type GrpcOptions } from "./grpc_options.ts";
import { createGrpcHandler } from "./grpc_server.ts";
import { MemoryApi } from "./memory_api.ts";
import { MemoryStream } from "./memory_stream.ts";

function setUp(options: Partial<GrpcOptions> = {}, headers: Record<string, string> = {}) {
  const api = new MemoryApi();
  const clock = new FakeClock();
  const setTimer = (delayMs: number, callback: () => void) => clock.setTimer(delayMs, callback);
  const handler = createGrpcHandler(api, { ...DEFAULT_GRPC_OPTIONS, setTimer, ...options });
  const stream = new MemoryStream("/inference.GRPCInferenceService/ModelStreamInfer", headers);
  handler.open(stream);
  return { api, clock, stream };
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

function responses(stream: MemoryStream) {
  return stream.sent.map((message) =>
    fromBinary(ModelStreamInferResponseSchema, message.subarray(5))
  );
}

function ids(stream: MemoryStream) {
  return responses(stream).map(({ inferResponse }) => inferResponse!.id);
}

Deno.test("ModelStreamInfer ends with success when nothing was asked", async () => {
  const { stream, clock } = setUp();
  stream.end();
  assert.deepEqual(await stream.finished(), { "grpc-status": "0" });
  assert.equal(clock.timerCount, 0);
});

Deno.test("ModelStreamInfer answers in request order, each final, and ends after the half-close", async () => {
  const { api, clock, stream } = setUp();
  api.hold = true;
  for (const id of ["a", "b", "c"]) stream.message(request(id));
  stream.end();
  api.held[2]!.answer();
  api.held[1]!.answer();
  await clock.settle();
  assert.equal(stream.sent.length, 0);
  assert.equal(stream.trailers, undefined);
  api.held[0]!.answer();
  assert.deepEqual(await stream.finished(), { "grpc-status": "0" });
  assert.deepEqual(ids(stream), ["a", "b", "c"]);
  const { parameters } = responses(stream)[0]!.inferResponse!;
  assert.deepEqual(parameters.triton_final_response!.parameterChoice, {
    case: "boolParam",
    value: true,
  });
  assert.equal(stream.unreleased, 0);
  assert.equal(api.openResponses, 0);
});

Deno.test("ModelStreamInfer tells failures inside the stream", async () => {
  const { api, clock, stream } = setUp();
  api.hold = true;
  stream.message(request("a", { parameters: { timeout: {} } }));
  stream.message(request("b", { modelName: "nope", parameters: { timeout: {} } }));
  stream.message(request("c"));
  stream.message(request("d"));
  api.held[0]!.fail(new ServerError("UNAVAILABLE", "Request timeout expired"));
  api.held[1]!.answer();
  stream.end();
  assert.deepEqual(await stream.finished(), { "grpc-status": "0" });
  assert.deepEqual(ids(stream), ["a", "b", "c", "d"]);
  assert.deepEqual(responses(stream).map(({ errorMessage }) => errorMessage), [
    "invalid value type for 'timeout' parameter, expected int64_param.",
    "Request for unknown model: 'nope' is not found",
    "Request timeout expired",
    "",
  ]);
  const [early, , late] = responses(stream);
  assert.equal(early!.inferResponse!.modelName, "");
  assert.equal(late!.inferResponse!.modelName, "echo");
  assert.deepEqual(Object.keys(late!.inferResponse!.parameters), ["triton_final_response"]);
  await clock.settle();
  assert.equal(stream.unreleased, 0);
});

Deno.test("ModelStreamInfer tells what the core refuses with the id alone", async () => {
  const { api, stream } = setUp();
  api.hold = true;
  stream.message(request("a"));
  api.held[0]!.fail(new ServerError("INVALID_ARG", "bad shape", { isRefusal: true }));
  stream.end();
  await stream.finished();
  const { errorMessage, inferResponse } = responses(stream)[0]!;
  assert.equal(errorMessage, "bad shape");
  assert.equal(inferResponse!.id, "a");
  assert.equal(inferResponse!.modelName, "");
  assert.deepEqual(inferResponse!.parameters, {});
});

Deno.test("ModelStreamInfer with triton_grpc_error ends with the status of the first failure", async () => {
  const { api, clock, stream } = setUp({}, { "triton_grpc_error": "true" });
  api.hold = true;
  stream.message(request("a"));
  stream.message(request("b"));
  api.held[1]!.fail(new ServerError("NOT_FOUND", "bang"));
  assert.deepEqual(await stream.finished(), { "grpc-status": "5", "grpc-message": "bang" });
  assert.equal(api.held[0]!.options.signal!.aborted, true);
  api.held[0]!.answer();
  await clock.settle();
  assert.equal(stream.unreleased, 0);
  assert.equal(api.openResponses, 0);
  assert.equal(stream.sent.length, 0);
});

Deno.test("ModelStreamInfer answers what came before a broken message, then ends with its error", async () => {
  const { api, stream } = setUp();
  api.hold = true;
  stream.message(request("a"));
  stream.message(new Uint8Array([10, 0xff]));
  stream.message(request("b"));
  assert.equal(api.held.length, 1);
  api.held[0]!.answer();
  const trailers = await stream.finished();
  assert.equal(trailers["grpc-status"], "13");
  assert.deepEqual(ids(stream), ["a"]);
  assert.equal(stream.unreleased, 0);
});

Deno.test("ModelStreamInfer cancels everything when the client has gone", async () => {
  const { api, clock, stream } = setUp();
  api.hold = true;
  for (const id of ["a", "b", "c"]) stream.message(request(id));
  api.held[1]!.answer();
  await clock.settle();
  stream.disconnect();
  assert.equal(api.held.every(({ options }) => options.signal!.aborted), true);
  api.held[0]!.fail(new ServerError("CANCELLED", "gone"));
  api.held[2]!.answer();
  await clock.settle();
  assert.equal(stream.unreleased, 0);
  assert.equal(api.openResponses, 0);
  assert.equal(clock.timerCount, 0);
});

Deno.test("ModelStreamInfer ends at its deadline", async () => {
  const { api, clock, stream } = setUp({}, { "grpc-timeout": "2S" });
  api.hold = true;
  stream.message(request("a"));
  await clock.advance(2000);
  assert.equal(stream.trailers!["grpc-status"], "4");
  assert.equal(api.held[0]!.options.signal!.aborted, true);
  api.held[0]!.answer();
  await clock.settle();
  assert.equal(stream.unreleased, 0);
  assert.equal(clock.timerCount, 0);
});

Deno.test("ModelStreamInfer holds the client back while too much is in flight", async () => {
  const { api, clock, stream } = setUp({ maxStreamRequests: 4 });
  api.hold = true;
  for (const id of ["a", "b", "c"]) stream.message(request(id));
  assert.equal(stream.paused, false);
  stream.message(request("d"));
  assert.equal(stream.paused, true);
  stream.writable = false;
  for (const held of api.held) held.answer();
  await clock.settle();
  assert.equal(stream.sent.length, 4);
  assert.equal(stream.paused, true);
  stream.flush();
  assert.equal(stream.paused, false);
  const bytes = setUp({ maxStreamBytes: 50 });
  bytes.api.hold = true;
  bytes.stream.message(request("a"));
  bytes.stream.message(request("b"));
  assert.equal(bytes.stream.paused, true);
});

Deno.test("ModelStreamInfer starts no more requests than may be in flight, whatever the client had room to send", async () => {
  const { api, clock, stream } = setUp({ maxStreamRequests: 4 });
  api.hold = true;
  const sent = Array.from({ length: 23 }, (_, index) => `r${index}`);
  for (const id of sent) stream.message(request(id));
  stream.end();
  let answeredCount = 0;
  while (answeredCount < sent.length) {
    await clock.settle();
    const running = api.held.slice(answeredCount);
    assert.ok(running.length <= 4 && running.length > 0, `${running.length} in flight`);
    assert.equal(stream.paused, true);
    running[0]!.answer();
    answeredCount++;
  }
  assert.equal((await stream.finished())["grpc-status"], "0");
  assert.deepEqual(ids(stream), sent);
  assert.equal(stream.unreleased, 0);
});

Deno.test("ModelStreamInfer lets go of requests that wait when the stream ends before their turn", async () => {
  const gone = setUp({ maxStreamRequests: 2 });
  gone.api.hold = true;
  for (const id of ["a", "b", "c", "d"]) gone.stream.message(request(id));
  gone.stream.onReset();
  for (const held of gone.api.held) held.answer();
  await gone.clock.settle();
  assert.deepEqual([gone.api.held.length, gone.stream.unreleased], [2, 0]);
  const exiting = setUp({ maxStreamRequests: 2 });
  exiting.api.hold = true;
  for (const id of ["a", "b", "c", "d"]) exiting.stream.message(request(id));
  exiting.api.exiting = true;
  await exiting.clock.advance(1000);
  for (const held of exiting.api.held) held.answer();
  assert.equal((await exiting.stream.finished())["grpc-status"], "14");
  assert.deepEqual(ids(exiting.stream), ["a", "b"]);
  assert.equal(exiting.stream.unreleased, 0);
});

Deno.test("ModelStreamInfer ends at shutdown: idle at once, busy after its answers", async () => {
  const idle = setUp();
  idle.api.exiting = true;
  await idle.clock.advance(1000);
  const text = "GRPC server is shutting down and has stopped accepting new requests.";
  assert.deepEqual(idle.stream.trailers, { "grpc-status": "14", "grpc-message": text });
  const busy = setUp();
  busy.api.hold = true;
  busy.stream.message(request("a"));
  busy.api.exiting = true;
  busy.stream.message(request("b"));
  busy.api.held[0]!.answer();
  const trailers = await busy.stream.finished();
  assert.equal(trailers["grpc-status"], "14");
  assert.deepEqual(ids(busy.stream), ["a"]);
});

Deno.test("ModelStreamInfer keeps the order of messages that take long to decompress", async () => {
  const { stream } = setUp({}, { "grpc-encoding": "gzip" });
  const large = { rawInputContents: [new Uint8Array(3_000_000)] };
  stream.message(gzipSync(request("a", large)), true);
  assert.equal(stream.paused, true);
  stream.message(request("b"));
  stream.message(gzipSync(request("c", large)), true);
  stream.message(gzipSync(request("d")), true);
  stream.end();
  assert.deepEqual(await stream.finished(), { "grpc-status": "0" });
  assert.deepEqual(ids(stream), ["a", "b", "c", "d"]);
  assert.equal(stream.unreleased, 0);
  assert.equal(stream.paused, false);
});

Deno.test("ModelStreamInfer compresses answers when option and client allow it", async () => {
  const { stream } = setUp({ responseCompressionLevel: "low" }, { "grpc-accept-encoding": "gzip" });
  stream.message(request("a", { rawInputContents: [new Uint8Array(500_000)] }));
  stream.message(request("b"));
  stream.end();
  await stream.finished();
  assert.deepEqual(stream.responseHeaders, [
    ["content-type", "application/grpc"],
    ["grpc-encoding", "gzip"],
  ]);
  assert.deepEqual(stream.sent.map((message) => message[0]), [1, 1]);
  assert.equal(stream.sent[0]!.length < 5000, true);
});

Deno.test("ModelStreamInfer lets go of everything when a message cannot be decompressed", async () => {
  for (const headers of [{ "grpc-encoding": "gzip" }, {}]) {
    const { api, clock, stream } = setUp({}, headers);
    api.hold = true;
    stream.message(request("a"));
    stream.message(new Uint8Array([1, 2, 3]), true);
    assert.equal((await stream.finished())["grpc-status"], "13");
    assert.equal(api.held[0]!.options.signal?.aborted, true);
    api.held[0]!.answer();
    await Promise.resolve();
    assert.equal(clock.timerCount, 0, "nobody looks at the state of the server any more");
    assert.equal(stream.unreleased, 0);
  }
});
