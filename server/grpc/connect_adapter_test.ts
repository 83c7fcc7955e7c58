import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import {
  ModelInferRequestSchema,
  ModelInferResponseSchema,
  ModelStreamInferResponseSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { FakeClock } from "../core/fake_clock.ts";
import type { HttpResponse } from "../transport/transport.ts";
import { createConnectHandler } from "./connect_adapter.ts";
import { DEFAULT_GRPC_OPTIONS, type GrpcOptions } from "./grpc_options.ts";
import { echoResponse, MemoryApi } from "./memory_api.ts";
import { joinParts } from "../../proto/join_parts.ts";
import { frameOf } from "./message_frame.ts";

const SERVICE = "/inference.GRPCInferenceService";

function setUp(options: Partial<GrpcOptions> = {}) {
  const api = new MemoryApi();
  const clock = new FakeClock();
  const setTimer = (delayMs: number, callback: () => void) => clock.setTimer(delayMs, callback);
  const handler = createConnectHandler(api, { ...DEFAULT_GRPC_OPTIONS, setTimer, ...options });
  const post = async (
    path: string,
    { headers, body }: { headers: Record<string, string>; body: Uint8Array | string },
  ) => {
    const fields = Object.entries(headers);
    const response = await handler.handle({
      method: "POST",
      target: path,
      httpVersion: "1.1",
      headers: { get: (name) => headers[name], entries: () => fields },
      body: typeof body === "string" ? new TextEncoder().encode(body) : body,
      signal: new AbortController().signal,
      arrivedMs: 0,
    });
    return { response, bytes: await bodyOf(response) };
  };
  return { api, clock, handler, post };
}

async function bodyOf({ body }: HttpResponse): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  for await (const part of body ?? []) parts.push(part);
  return joinParts(parts);
}

function field({ headers }: HttpResponse, name: string): string | undefined {
  return headers?.find(([key]) => key === name)?.[1];
}

const INFER = {
  modelName: "echo",
  id: "1",
  inputs: [{ name: "X", datatype: "FP32", shape: [2n], contents: { fp32Contents: [1, 2] } }],
};
const INFER_BYTES = toBinary(ModelInferRequestSchema, create(ModelInferRequestSchema, INFER));
const JSON_TYPE = { "content-type": "application/json" };

Deno.test("matches() takes the paths of the services only", () => {
  const { handler } = setUp();
  const matches = (target: string) =>
    handler.matches({
      method: "POST",
      target,
      httpVersion: "1.1",
      headers: { get: () => undefined, entries: () => [] },
    });
  assert.equal(matches(`${SERVICE}/ModelInfer`), true);
  assert.equal(matches("/grpc.health.v1.Health/Check"), true);
  assert.equal(matches("/v2/health/live"), false);
  assert.equal(matches("/inference.GRPCInferenceServiceX/ModelInfer"), false);
});

Deno.test("admit() refuses what needs no body for that", () => {
  const { handler } = setUp();
  const admit = (target: string, length: string) =>
    handler.admit({
      method: "POST",
      target,
      httpVersion: "1.1",
      headers: { get: (name) => name === "content-length" ? length : undefined, entries: () => [] },
    })?.status;
  assert.equal(admit(`${SERVICE}/ModelInfer`, "1000"), undefined);
  assert.equal(admit(`${SERVICE}/ModelInfer`, "1000000000"), 413);
  assert.equal(admit(`${SERVICE}/Nope`, "10"), 404);
});

Deno.test("Connect with JSON serves unary calls", async () => {
  const { post } = setUp();
  const live = await post(`${SERVICE}/ServerLive`, { headers: JSON_TYPE, body: "{}" });
  assert.equal(live.response.status, 200);
  assert.deepEqual(JSON.parse(new TextDecoder().decode(live.bytes)), { live: true });
  const body = JSON.stringify({
    model_name: "echo",
    inputs: [{ name: "X", datatype: "INT32", shape: [1], contents: { intContents: [-1] } }],
  });
  const infer = await post(`${SERVICE}/ModelInfer`, { headers: JSON_TYPE, body });
  assert.deepEqual(JSON.parse(new TextDecoder().decode(infer.bytes)), {
    modelName: "echo",
    modelVersion: "1",
    outputs: [{ name: "OUT_X", datatype: "INT32", shape: ["1"] }],
    rawOutputContents: ["/////w=="],
  });
});

Deno.test("Connect with protobuf serves ModelInfer, also compressed", async () => {
  const { api, post } = setUp();
  const type = { "content-type": "application/proto" };
  for (
    const request of [
      { headers: type, body: INFER_BYTES },
      { headers: { ...type, "content-encoding": "gzip" }, body: gzipSync(INFER_BYTES) },
    ]
  ) {
    const { response, bytes } = await post(`${SERVICE}/ModelInfer`, request);
    assert.equal(response.status, 200);
    assert.equal(field(response, "content-type"), "application/proto");
    const message = fromBinary(ModelInferResponseSchema, bytes);
    assert.deepEqual(
      message.rawOutputContents[0],
      new Uint8Array(new Float32Array([1, 2]).buffer),
    );
  }
  assert.equal(api.openResponses, 0);
});

Deno.test("Connect answers errors with their code", async () => {
  const { api, post } = setUp();
  const body = '{"name":"x"}';
  const unknown = await post(`${SERVICE}/ModelMetadata`, { headers: JSON_TYPE, body });
  assert.equal(unknown.response.status, 404);
  assert.deepEqual(JSON.parse(new TextDecoder().decode(unknown.bytes)), {
    code: "not_found",
    message: "Request for unknown model: 'x' is not found",
  });
  const broken = await post(`${SERVICE}/ModelReady`, { headers: JSON_TYPE, body: "{" });
  assert.equal(broken.response.status, 400);
  assert.equal(
    (await post(`${SERVICE}/Nope`, { headers: JSON_TYPE, body: "{}" })).response.status,
    404,
  );
  const text = { "content-type": "text/plain" };
  assert.equal(
    (await post(`${SERVICE}/ServerLive`, { headers: text, body: "" })).response.status,
    415,
  );
  api.exiting = true;
  const exiting = await post(`${SERVICE}/ServerLive`, { headers: JSON_TYPE, body: "{}" });
  assert.equal(exiting.response.status, 503);
});

Deno.test("Connect restricts calls and forwards headers like gRPC", async () => {
  const { api, post } = setUp({
    restrictedProtocols: [{ categories: ["inference"], key: "k", value: "v" }],
    headerForwardPattern: /^x-/i,
  });
  const headers = { "content-type": "application/proto", "x-user": "anna" };
  const refused = await post(`${SERVICE}/ModelInfer`, { headers, body: INFER_BYTES });
  assert.equal(refused.response.status, 503);
  const allowed = { ...headers, "triton-grpc-protocol-k": "v" };
  const { response } = await post(`${SERVICE}/ModelInfer`, { headers: allowed, body: INFER_BYTES });
  assert.equal(response.status, 200);
  assert.deepEqual({ ...api.requests[0]!.parameters }, { "x-user": "anna" });
});

Deno.test("gRPC-Web serves unary calls and streams", async () => {
  const { api, post } = setUp();
  const headers = { "content-type": "application/grpc-web+proto" };
  const unary = await post(`${SERVICE}/ModelInfer`, {
    headers,
    body: joinParts(frameOf(INFER_BYTES)),
  });
  assert.equal(unary.response.status, 200);
  const length = new DataView(unary.bytes.buffer).getUint32(1);
  fromBinary(ModelInferResponseSchema, unary.bytes.subarray(5, 5 + length));
  assert.match(new TextDecoder().decode(unary.bytes.subarray(5 + length + 5)), /grpc-status: 0/);
  const frames = [INFER_BYTES, INFER_BYTES, INFER_BYTES].flatMap(frameOf);
  const stream = await post(`${SERVICE}/ModelStreamInfer`, { headers, body: joinParts(frames) });
  const ids: string[] = [];
  let at = 0;
  const view = new DataView(stream.bytes.buffer);
  while (stream.bytes[at] === 0) {
    const end = at + 5 + view.getUint32(at + 1);
    const message = fromBinary(ModelStreamInferResponseSchema, stream.bytes.subarray(at + 5, end));
    ids.push(message.inferResponse!.id);
    at = end;
  }
  assert.deepEqual(ids, ["1", "1", "1"]);
  assert.match(new TextDecoder().decode(stream.bytes.subarray(at + 5)), /grpc-status: 0/);
  assert.equal(api.openResponses, 0);
});

Deno.test("a gRPC-Web stream that is read in part gives every response back", async () => {
  const { api, handler } = setUp();
  const headers = { "content-type": "application/grpc-web+proto" };
  const { body } = await handler.handle({
    method: "POST",
    target: `${SERVICE}/ModelStreamInfer`,
    httpVersion: "1.1",
    headers: {
      get: (name) => name === "content-type" ? headers[name] : undefined,
      entries: () => Object.entries(headers),
    },
    body: joinParts([INFER_BYTES, INFER_BYTES, INFER_BYTES].flatMap(frameOf)),
    signal: new AbortController().signal,
    arrivedMs: 0,
  });
  for await (const _part of body as AsyncIterable<Uint8Array>) break;
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  assert.equal(api.requests.length, 3);
  assert.equal(api.openResponses, 0);
});

Deno.test("a gRPC-Web stream of a decoupled model waits for its reader, and ends when that has gone", async () => {
  const { api, clock, handler } = setUp();
  api.decoupled = true;
  const headers = { "content-type": "application/grpc-web+proto" };
  const answer = Promise.resolve(handler.handle({
    method: "POST",
    target: `${SERVICE}/ModelStreamInfer`,
    httpVersion: "1.1",
    headers: {
      get: (name) => name === "content-type" ? headers[name] : undefined,
      entries: () => Object.entries(headers),
    },
    body: joinParts(frameOf(INFER_BYTES)),
    signal: new AbortController().signal,
    arrivedMs: 0,
  }));
  while (api.streams.length === 0) await clock.settle();
  const [stream] = api.streams;
  const send = () => {
    api.openResponses++;
    return stream!.receive({ response: echoResponse(stream!.request), isFinal: false });
  };
  assert.equal(send(), undefined);
  const { body } = await answer;
  const reader = (body as AsyncIterable<Uint8Array>)[Symbol.asyncIterator]();
  assert.equal((await reader.next()).done, false);
  let count = 0;
  let wait: Promise<void> | undefined;
  while (wait === undefined && count++ < 1000) wait = send();
  assert.ok(count <= 64);
  let isGoingOn = false;
  wait!.then(() => isGoingOn = true);
  await clock.settle();
  assert.equal(isGoingOn, false);
  await reader.return!();
  await clock.settle();
  assert.equal(isGoingOn, true);
  assert.equal(stream!.options.signal!.aborted, true);
  send();
  stream!.settle();
  await clock.settle();
  assert.equal(api.openResponses, 0);
});

Deno.test("Connect refuses messages above its bound", async () => {
  const { post } = setUp({ maxMessageBytes: 1000 });
  const body = gzipSync(new Uint8Array(2_000_000));
  const headers = { "content-type": "application/proto", "content-encoding": "gzip" };
  const { response } = await post(`${SERVICE}/ModelInfer`, { headers, body });
  assert.equal(response.status, 429);
});

Deno.test("handle() refuses what the generated readers would need too long for", async () => {
  const { post } = setUp();
  const path = `${SERVICE}/ModelInfer`;
  const json = JSON.stringify({ id: "x".repeat(2 * 1024 * 1024) });
  const tooLong = await post(path, { headers: JSON_TYPE, body: json });
  assert.equal(tooLong.response.status, 429);
  const bytesContents = Array.from({ length: 70_000 }, () => new Uint8Array(0));
  const message = toBinary(
    ModelInferRequestSchema,
    create(ModelInferRequestSchema, {
      modelName: "echo",
      inputs: [{ contents: { bytesContents } }],
    }),
  );
  const proto = { "content-type": "application/proto" };
  const gzip = { ...proto, "content-encoding": "gzip" };
  const web = { "content-type": "application/grpc-web+proto" };
  const decoder = new TextDecoder();
  for (const [headers, body] of [[proto, message], [gzip, gzipSync(message)]] as const) {
    const { response, bytes } = await post(path, { headers, body });
    assert.equal(response.status, 400);
    assert.match(decoder.decode(bytes), /explicit tensor data have more than/);
  }
  const { bytes } = await post(path, { headers: web, body: joinParts(frameOf(message)) });
  assert.match(decoder.decode(bytes), /grpc-status: 3\r\n/);
});
