import assert from "node:assert/strict";
import { gunzipSync, gzipSync } from "node:zlib";
import type { InferenceApi } from "../core/inference_api.ts";
import { ServerError } from "../../proto/status.ts";
import type { CancelSignal, HttpResponse } from "../transport/transport.ts";
import { DEFAULT_HTTP_OPTIONS, type HttpOptions } from "./http_options.ts";
import { createHttpHandler } from "./http_server.ts";
import {
  InMemoryFacade,
  memoryModel,
  memoryRequest,
  responseBytes,
  responseText,
} from "./in_memory_facade.ts";

const MODELS = [
  memoryModel("echo"),
  memoryModel("stream", { decoupled: true }),
  memoryModel("two words", { versions: ["1", "2"] }),
];
const BODY = '{"inputs":[{"name":"IN0","datatype":"FP32","shape":[1],"data":[1.5]}]}';

interface Attempt {
  readonly headers?: Record<string, string>;
  readonly body?: string | Uint8Array;
  readonly options?: Partial<HttpOptions>;
  readonly api?: InferenceApi;
}

async function send(method: string, target: string, attempt: Attempt = {}): Promise<HttpResponse> {
  const api = attempt.api ?? new InMemoryFacade(MODELS);
  using handler = createHttpHandler(api, { ...DEFAULT_HTTP_OPTIONS, ...attempt.options });
  const { headers = {}, body = "" } = attempt;
  return await handler.handle(memoryRequest(method, target, { headers, body }));
}

function header(response: HttpResponse, name: string): string | undefined {
  return response.headers?.find(([field]) => field.toLowerCase() === name)?.[1];
}

async function assertError(
  response: Promise<HttpResponse>,
  status: number,
  message: string | RegExp,
) {
  const answer = await response;
  assert.equal(answer.status, status, responseText(answer));
  assert.equal(header(answer, "content-type"), "application/json");
  const members = JSON.parse(responseText(answer));
  assert.deepEqual(Object.keys(members), ["error"]);
  if (typeof message === "string") assert.equal(members.error, message);
  else assert.match(members.error, message);
}

Deno.test("the handler answers paths and methods it does not know", async () => {
  await assertError(send("GET", "/v2/nothing"), 404, "Not Found");
  await assertError(send("PUT", "/v2/models/echo/infer"), 405, "Method Not Allowed");
  const options = await send("OPTIONS", "/v2/logging");
  assert.equal(header(options, "allow"), "GET, POST");
});

Deno.test("admit() refuses from the head what handle() would refuse", () => {
  using handler = createHttpHandler(new InMemoryFacade(MODELS), DEFAULT_HTTP_OPTIONS);
  assert.equal(handler.admit!(memoryRequest("POST", "/nothing"))?.status, 404);
  assert.equal(handler.admit!(memoryRequest("GET", "/v2/models/echo/infer"))?.status, 405);
  assert.equal(handler.admit!(memoryRequest("POST", "/v2/models/echo/infer")), undefined);
});

Deno.test("health endpoints have no body, and say when the server is exiting", async () => {
  const api = new InMemoryFacade(MODELS);
  for (const target of ["/v2/health/live", "/v2/health/ready", "/v2/models/echo/ready"]) {
    assert.deepEqual(await send("GET", target, { api }), { status: 200 });
  }
  api.exiting = true;
  await assertError(send("GET", "/v2/health/live", { api }), 503, "Server exiting");
  await assertError(send("GET", "/v2/models/echo/ready", { api }), 503, "Server not ready");
  await assertError(
    send("GET", "/v2/models/x/ready"),
    404,
    "Request for unknown model: 'x' is not found",
  );
});

Deno.test("the ready endpoint of a model waits for what the model itself says", async () => {
  const api = new InMemoryFacade(MODELS);
  const target = "/v2/models/echo/versions/1/ready";
  api.modelReady = Promise.resolve(true);
  assert.deepEqual(await send("GET", target, { api }), { status: 200 });
  api.modelReady = Promise.resolve(false);
  await assertError(send("GET", target, { api }), 400, "Model version not ready");
});

Deno.test("model endpoints decode names and check versions", async () => {
  const metadata = await send("GET", "/v2/models/two%20words/versions/002");
  assert.equal(JSON.parse(responseText(metadata)).name, "two words");
  await assertError(send("GET", "/v2/models/echo/versions/9"), 404, /version 9 is not found/);
  const labelled = await send("GET", "/v2/models/echo/versions/stable");
  assert.equal(
    responseText(labelled),
    responseText(await send("GET", "/v2/models/echo/versions/1")),
  );
  await assertError(send("GET", "/v2/models/echo/versions/latest"), 404, "Not Found");
  await assertError(
    send("GET", "/v2/models/echo/versions/18446744073709551616"),
    400,
    /^failed to get model version from specified version string '18446744073709551616'/,
  );
});

Deno.test("restricted endpoints need their header before anything else", async () => {
  const restrictedApis = new Map([["inference", { key: "k", value: "v" }]] as const);
  const options = { restrictedApis };
  const text = "This API is restricted, expecting header 'k'";
  for (
    const target of ["/v2/models/echo/infer", "/v2/models/nope/%69nfer", "/v2/models/x/generate"]
  ) {
    await assertError(send("GET", target, { options }), 403, text);
    await assertError(send("POST", target, { options, headers: { k: "V" } }), 403, text);
  }
  const headers = { k: "v" };
  const answer = await send("POST", "/v2/models/echo/infer", { options, headers, body: BODY });
  assert.equal(answer.status, 200);
});

Deno.test("infer answers JSON and releases the response at once", async () => {
  const api = new InMemoryFacade(MODELS);
  const answer = await send("POST", "/v2/models/echo/infer", { api, body: BODY });
  assert.equal(header(answer, "content-type"), "application/json");
  assert.equal(
    responseText(answer),
    '{"model_name":"echo","model_version":"1","outputs":[{"name":"OUT0","datatype":"FP32","shape":[1],"data":[1.5]}]}',
  );
  assert.equal(answer.onSent, undefined);
  assert.equal(api.released.length, 1);
});

Deno.test("infer answers binary data behind the JSON and releases it when it was sent", async () => {
  const api = new InMemoryFacade(MODELS);
  const json =
    '{"inputs":[{"name":"IN0","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}],' +
    '"outputs":[{"name":"OUT0","parameters":{"binary_data":true}}]}';
  const body = new Uint8Array([...new TextEncoder().encode(json), 0, 0, 192, 63]);
  const headers = { "inference-header-content-length": String(json.length) };
  const answer = await send("POST", "/v2/models/echo/infer", { api, headers, body });
  assert.equal(header(answer, "content-type"), "application/octet-stream");
  const length = Number(header(answer, "inference-header-content-length"));
  assert.deepEqual([...responseBytes(answer).subarray(length)], [0, 0, 192, 63]);
  assert.equal(api.released.length, 0);
  answer.onSent!();
  assert.equal(api.released.length, 1);
});

Deno.test("infer takes a body as raw data when the header length is 0", async () => {
  const headers = { "inference-header-content-length": "0" };
  const answer = await send("POST", "/v2/models/echo/infer", { headers, body: new Uint8Array(12) });
  assert.match(responseText(answer), /"shape":\[3\],"parameters":{"binary_data_size":12}/);
});

Deno.test("infer checks the header length", async () => {
  const attempt = (value: string) =>
    send("POST", "/v2/models/echo/infer", {
      headers: { "inference-header-content-length": value },
      body: BODY,
    });
  await assertError(
    attempt("abc"),
    400,
    "Unable to parse Inference-Header-Content-Length, got: abc",
  );
  await assertError(attempt("0x10"), 400, /^Unable to parse/);
  await assertError(attempt("1e1"), 400, /^Unable to parse/);
  await assertError(attempt(""), 400, /^Unable to parse/);
  await assertError(
    attempt("5000"),
    400,
    "inference header size should be in range (0, 70), got: 5000",
  );
  await assertError(
    attempt("-1"),
    400,
    "inference header size should be in range (0, 70), got: -1",
  );
});

Deno.test("infer looks for the model before it complains about the body", async () => {
  await assertError(
    send("POST", "/v2/models/nope/infer", { body: "not JSON" }),
    404,
    "Request for unknown model: 'nope' is not found",
  );
  await assertError(
    send("POST", "/v2/models/stream/infer", { body: "{" }),
    501,
    "HTTP end point doesn't support models with decoupled transaction policy",
  );
  for (const body of ["", "{", "[]"]) {
    await assertError(send("POST", "/v2/models/echo/infer", { body }), 400, /./);
  }
});

Deno.test("infer maps errors of the core by their code", async () => {
  const api = new InMemoryFacade(MODELS);
  const cases = [["UNAVAILABLE", 503], ["INTERNAL", 500], ["CANCELLED", 400]] as const;
  for (const [code, status] of cases) {
    api.onInfer = () => Promise.reject(new ServerError(code, "why"));
    await assertError(send("POST", "/v2/models/echo/infer", { api, body: BODY }), status, "why");
  }
  api.onInfer = () => Promise.reject(new TypeError("bug"));
  await assertError(send("POST", "/v2/models/echo/infer", { api, body: BODY }), 500, "bug");
});

Deno.test("infer hands the request's signal to the core", async () => {
  const api = new InMemoryFacade(MODELS);
  using handler = createHttpHandler(api, DEFAULT_HTTP_OPTIONS);
  const request = memoryRequest("POST", "/v2/models/echo/infer", { body: BODY });
  let signal: CancelSignal | undefined;
  api.onInfer = (_, options) => {
    signal = options?.signal;
    return Promise.reject(new ServerError("CANCELLED", "gone"));
  };
  await handler.handle(request);
  assert.equal(signal, request.signal);
});

Deno.test("infer forwards headers that match the pattern", async () => {
  const api = new InMemoryFacade(MODELS);
  const options = { headerForwardPattern: /^(x-fwd-.*|sequence_id)$/i };
  const headers = { "x-fwd-a": "1", other: "2" };
  await send("POST", "/v2/models/echo/infer", { api, options, headers, body: BODY });
  assert.deepEqual(api.requests[0]!.parameters, { "x-fwd-a": "1" });
  await assertError(
    send("POST", "/v2/models/echo/infer", { options, headers: { sequence_id: "5" }, body: BODY }),
    400,
    "Header 'sequence_id' is reserved for Triton usage and cannot be forwarded.",
  );
});

Deno.test("infer reads and writes compressed bodies", async () => {
  const api = new InMemoryFacade(MODELS);
  const headers = { "content-encoding": "gzip", "accept-encoding": "gzip, deflate" };
  const answer = await send("POST", "/v2/models/echo/infer", {
    api,
    headers,
    body: gzipSync(BODY),
  });
  assert.equal(header(answer, "content-encoding"), "gzip");
  assert.match(String(gunzipSync(responseBytes(answer))), /"data":\[1.5\]/);
  assert.equal(api.released.length, 1);
});

Deno.test("infer refuses codings it does not know, and says which it knows", async () => {
  const attempt = (coding: string) =>
    send("POST", "/v2/models/echo/infer", { headers: { "content-encoding": coding }, body: BODY });
  await assertError(attempt("br"), 501, "Unsupported compression type");
  assert.equal(header(await attempt("br"), "accept-encoding"), "gzip, deflate");
  await assertError(attempt("gzip, gzip"), 400, /^Unsupported compression type/);
  await assertError(attempt("gzip"), 400, /^Unable to decompress request body/);
});

Deno.test("infer refuses a body that inflates beyond the limit", async () => {
  const answer = send("POST", "/v2/models/echo/infer", {
    headers: { "content-encoding": "deflate" },
    body: gzipSync(new Uint8Array(2_000_000)),
    options: { maxInputBytes: 1_000_000 },
  });
  await assertError(answer, 400, /^Decompressed data size exceeds .* 1000000 bytes/);
});

Deno.test("the repository endpoints check their bodies and names", async () => {
  const index = await send("POST", "/v2/repository/index");
  assert.equal(
    responseText(index),
    '[{"name":"echo","version":"1","state":"READY"},{"name":"never_loaded"}]',
  );
  await assertError(
    send("POST", "/v2/repository/index", { body: '{"ready":"yes"}' }),
    400,
    "Invalid value for 'ready': expected a boolean",
  );
  const api = new InMemoryFacade(MODELS);
  const load = (name: string, body = "") =>
    send("POST", `/v2/repository/models/${name}/load`, { api, body });
  for (const name of ["..", "%20..", "a/b", "../x", "%2e%2e", "m;%20touch%20/tmp/x", "..%2Fx"]) {
    await assertError(load(name), 400, /must not contain path traversal characters$/);
  }
  await assertError(load(""), 400, /^Model name cannot be empty/);
  await assertError(load("%20"), 400, /^Model name cannot be empty/);
  assert.equal(api.loaded.length, 0);
  for (const name of ["...", "model..1", "..my_model"]) {
    assert.deepEqual(await load(name), {
      status: 200,
      headers: [["content-type", "application/json"]],
    });
  }
  await load("m", '{"parameters":{"config":"{}","file:1/model.onnx":"AAEC*/w="}}');
  assert.deepEqual(api.loaded.at(-1), [
    "m",
    { config: "{}", "file:1/model.onnx": Uint8Array.of(0, 1, 2, 255) },
  ]);
  await assertError(load("m", '{"parameters":{"config":{}}}'), 400, /non-string as string$/);
  await assertError(
    load("m", '{"parameters":{"confg":"{}"}}'),
    400,
    /unexpected error on creating/,
  );
  await assertError(send("POST", "/v2/repository/main/models/m/load"), 501, /'repository_name'/);
});

Deno.test("trace settings and log settings are read, checked and handed on", async () => {
  const api = new InMemoryFacade(MODELS);
  const trace = await send("GET", "/v2/models/echo/trace/setting", { api });
  assert.deepEqual(JSON.parse(responseText(trace)).trace_level, ["OFF"]);
  await assertError(
    send("POST", "/v2/trace/setting", { api, body: '{"trace_rate":"10000000000"}' }),
    400,
    /out of range \[ 0, 4294967295 \], got: 10000000000$/,
  );
  const change = '{"trace_rate":"7","trace_count":null,"trace_level":["TENSORS","LOUD"]}';
  await send("POST", "/v2/models/echo/trace/setting", { api, body: change });
  assert.deepEqual(api.traceChanges.at(-1), [
    "echo",
    { levels: ["TENSORS", "LOUD"], rate: 7, count: null },
  ]);
  await assertError(
    send("POST", "/v2/trace/setting", { api, body: '{"trace_file":"/etc/passwd"}' }),
    501,
    "trace file location can not be updated through network protocol",
  );
  const refused: [string, string, RegExp][] = [
    ["/v2/trace/setting", '{"trace_level":[1]}', /'trace_level': .*non-string as string$/],
    ["/v2/trace/setting", '{"trace_count":"3000000000"}', /out of range \[ -1, 2147483647 \]/],
    ["/v2/logging", '{"log_verbose_level":1.5}', /non-unsigned-integer as unsigned-integer$/],
  ];
  for (const [path, body, text] of refused) {
    await assertError(send("POST", path, { api, body }), 400, text);
  }
  const logging = await send("POST", "/v2/logging", { api, body: '{"log_info":true}' });
  assert.equal(JSON.parse(responseText(logging)).log_format, "default");
  const changed = await send("POST", "/v2/logging", {
    api,
    body: '{"log_info":false,"log_verbose_level":2,"log_colour":1,"log_error":null}',
  });
  assert.deepEqual(JSON.parse(responseText(changed)), {
    log_file: "",
    log_info: false,
    log_warning: true,
    log_error: true,
    log_verbose_level: 2,
    log_format: "default",
  });
  await assertError(
    send("POST", "/v2/logging", { api, body: '{"log_info":true,"log_format":"xml"}' }),
    503,
    "invalid argument for --log_format, got: xml",
  );
  // What came before the fault is applied.
  assert.equal(api.log.settings.info, true);
  await assertError(
    send("POST", "/v2/logging", { api, body: '{"log_file":"/etc/passwd"}' }),
    501,
    "log file location can not be updated through network protocol",
  );
});

Deno.test("generate and generate_stream answer in their own forms", async () => {
  const body = '{"IN0":[1,2]}';
  const answer = await send("POST", "/v2/models/echo/generate", { body });
  assert.equal(responseText(answer), '{"OUT0":[1.0,2.0],"model_name":"echo","model_version":"1"}');
  const stream = await send("POST", "/v2/models/echo/generate_stream", { body });
  assert.equal(header(stream, "content-type"), "text/event-stream; charset=utf-8");
  const events = ReadableStream.from(stream.body as AsyncIterable<Uint8Array<ArrayBuffer>>);
  assert.match(await new Response(events).text(), /^data: {"OUT0":\[1.0,2.0\],.*}\n\n$/);
  await assertError(
    send("POST", "/v2/models/echo/generate", { body, headers: { "content-encoding": "gzip" } }),
    400,
    "Unsupported content-encoding, only 'identity' is supported.",
  );
});
