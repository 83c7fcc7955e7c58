import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import {
  ModelInferRequestSchema,
  ModelInferResponseSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { FakeClock } from "../core/fake_clock.ts";
import { createMemoryServer, statusOf } from "./memory_server.ts";

function inferMessage(init: MessageInitShape<typeof ModelInferRequestSchema> = {}) {
  return toBinary(
    ModelInferRequestSchema,
    create(ModelInferRequestSchema, {
      modelName: "echo",
      id: "7",
      inputs: [{ name: "X", datatype: "FP32", shape: [1n, 400n] }],
      rawInputContents: [new Uint8Array(1600).fill(3)],
      ...init,
    }),
  );
}

Deno.test("ModelInfer answers with the outputs by reference and gives every buffer back", async () => {
  const { api, call } = createMemoryServer(new FakeClock());
  const stream = await call("ModelInfer", inferMessage());
  assert.deepEqual(stream.trailers, { "grpc-status": "0" });
  assert.deepEqual(stream.responseHeaders, [["content-type", "application/grpc"]]);
  const [message] = stream.sent;
  assert.equal(new DataView(message!.buffer).getUint32(1), message!.length - 5);
  const response = fromBinary(ModelInferResponseSchema, message!.subarray(5));
  assert.equal(response.id, "7");
  assert.equal(response.modelVersion, "1");
  assert.deepEqual(response.outputs.map(({ name, datatype, shape }) => [name, datatype, shape]), [
    ["OUT_X", "FP32", [1n, 400n]],
  ]);
  assert.deepEqual(response.rawOutputContents, [new Uint8Array(1600).fill(3)]);
  assert.equal(stream.sentParts[0]!.at(-1), api.requests[0]!.inputs[0]!.data);
  assert.equal(api.openResponses, 0);
});

Deno.test("ModelInfer keeps the request until the answer was written", async () => {
  const { api, open } = createMemoryServer(new FakeClock());
  const stream = open("ModelInfer");
  stream.writable = false;
  stream.message(inferMessage());
  await stream.finished();
  assert.equal(stream.unreleased, 1);
  assert.equal(api.openResponses, 1);
  stream.flush();
  assert.equal(stream.unreleased, 0);
  assert.equal(api.openResponses, 0);
});

Deno.test("ModelInfer tells of an unknown model before wrong fields", async () => {
  const { call } = createMemoryServer(new FakeClock());
  const parameters = { timeout: { parameterChoice: { case: "boolParam", value: true } } } as const;
  assert.deepEqual(statusOf(await call("ModelInfer", inferMessage({ parameters }))), [
    "3",
    "invalid value type for 'timeout' parameter, expected int64_param.",
  ]);
  const message = inferMessage({ modelName: "nope", parameters });
  assert.deepEqual(statusOf(await call("ModelInfer", message)), [
    "5",
    "Request for unknown model: 'nope' is not found",
  ]);
});

Deno.test("ModelInfer refuses requests during shutdown", async () => {
  const { api, call } = createMemoryServer(new FakeClock());
  api.exiting = true;
  assert.deepEqual(statusOf(await call("ModelInfer", inferMessage())), [
    "14",
    "GRPC server is shutting down and has stopped accepting new requests.",
  ]);
});

Deno.test("ModelInfer cancels the request when the client has gone", async () => {
  const { api, open } = createMemoryServer(new FakeClock());
  api.hold = true;
  const stream = open("ModelInfer");
  stream.message(inferMessage());
  const [held] = api.held;
  assert.equal(held!.options.signal!.aborted, false);
  stream.disconnect();
  assert.equal(held!.options.signal!.aborted, true);
  assert.equal(stream.unreleased, 1);
  held!.answer();
  await Promise.resolve();
  await Promise.resolve();
  assert.equal(stream.unreleased, 0);
  assert.equal(api.openResponses, 0);
  assert.equal(stream.sent.length, 0);
});

Deno.test("ModelInfer ends with DEADLINE_EXCEEDED when its time is over", async () => {
  const { api, clock, open } = createMemoryServer(new FakeClock());
  api.hold = true;
  const stream = open("ModelInfer", { "grpc-timeout": "1500m" });
  stream.message(inferMessage());
  await clock.advance(1499);
  assert.equal(stream.trailers, undefined);
  await clock.advance(1);
  assert.deepEqual(statusOf(stream), ["4", "Deadline Exceeded"]);
  assert.equal(api.held[0]!.options.signal!.aborted, true);
});

Deno.test("unary calls refuse a second message and a missing one", async () => {
  const { api, open } = createMemoryServer(new FakeClock());
  api.hold = true;
  const twice = open("ModelInfer");
  twice.message(inferMessage());
  twice.message(inferMessage());
  assert.equal(twice.trailers?.["grpc-status"], "13");
  assert.equal(api.held[0]!.options.signal!.aborted, true);
  api.held[0]!.answer();
  await Promise.resolve();
  await Promise.resolve();
  assert.equal(twice.unreleased, 0);
  const none = open("ServerLive");
  none.end();
  assert.equal(none.trailers?.["grpc-status"], "13");
});

Deno.test("open() refuses unknown methods, encodings and timeouts", async () => {
  const { open, call } = createMemoryServer(new FakeClock());
  assert.equal((await call("NoSuchMethod", new Uint8Array())).trailers?.["grpc-status"], "12");
  const encoding = open("ServerLive", { "grpc-encoding": "snappy" });
  assert.equal(encoding.trailers?.["grpc-status"], "12");
  assert.equal(encoding.trailers?.["grpc-accept-encoding"], "identity, deflate, gzip");
  const timeout = open("ServerLive", { "grpc-timeout": "soon" });
  assert.deepEqual(statusOf(timeout), ["13", "Malformed grpc-timeout 'soon'"]);
  const flagged = open("ServerLive");
  flagged.message(new Uint8Array(4), true);
  assert.equal(flagged.trailers?.["grpc-status"], "13");
  assert.equal(flagged.unreleased, 0);
});

Deno.test("unary calls answer INTERNAL to what is no message", async () => {
  const { call } = createMemoryServer(new FakeClock());
  for (const bytes of [[0x0a, 0xff, 0x61], [0x0a, 2, 0xff, 0xfe], [0x0b, 0x0b]]) {
    const ready = await call("ModelReady", new Uint8Array(bytes));
    assert.deepEqual(statusOf(ready), ["13", "Unable to parse request"]);
    const infer = await call("ModelInfer", new Uint8Array(bytes));
    assert.deepEqual(statusOf(infer), ["13", "Unable to parse request"]);
  }
});

Deno.test("restricted calls need their key", async () => {
  const { call } = createMemoryServer(new FakeClock(), {
    restrictedProtocols: [{ categories: ["logging"], key: "Admin-Key", value: "let-me-in" }],
  });
  const empty = new Uint8Array();
  const name = "triton-grpc-protocol-admin-key";
  const refused = [
    "14",
    "This protocol is restricted, expecting header 'triton-grpc-protocol-Admin-Key'",
  ];
  assert.deepEqual(statusOf(await call("LogSettings", empty)), refused);
  assert.deepEqual(statusOf(await call("LogSettings", empty, { [name]: "out" })), refused);
  assert.deepEqual(statusOf(await call("LogSettings", empty, { [name]: "let-me-in" })), ["0", ""]);
  assert.deepEqual(statusOf(await call("TraceSetting", empty)), ["0", ""]);
});

Deno.test("metadata that match the pattern become parameters", async () => {
  const { api, call } = createMemoryServer(new FakeClock(), { headerForwardPattern: /fwd-.*/i });
  const parameters = {
    "fwd-a": { parameterChoice: { case: "int64Param", value: 1n } },
    own: { parameterChoice: { case: "doubleParam", value: 0.5 } },
  } as const;
  const headers = { "x-fwd-a": "1", "fwd-a": "2", other: "3", "fwd-blob-bin": "AA" };
  await call("ModelInfer", inferMessage({ parameters }), headers);
  assert.deepEqual({ ...api.requests[0]!.parameters }, { "x-fwd-a": "1", "fwd-a": "2", own: 0.5 });
});

Deno.test("small calls refuse large messages", async () => {
  const { call } = createMemoryServer(new FakeClock());
  const stream = await call("ServerLive", new Uint8Array(5_000_000));
  assert.deepEqual(statusOf(stream), [
    "8",
    "Received message larger than max (5000000 vs. 4194304)",
  ]);
});

Deno.test("Small calls refuse messages with too many fields, known or not", async () => {
  const { call } = createMemoryServer(new FakeClock());
  for (const tag of [0x0a, 0x1a, 0x7a]) {
    const message = new Uint8Array(2 * 65_537);
    for (let at = 0; at < message.length; at += 2) message[at] = tag;
    const refusal = ["3", "request has more than 65536 fields"];
    assert.deepEqual(statusOf(await call("RepositoryModelLoad", message)), refusal);
    const [code] = statusOf(await call("ModelMetadata", message.subarray(2)));
    assert.notEqual(code, "3", "65536 are accepted");
  }
});
