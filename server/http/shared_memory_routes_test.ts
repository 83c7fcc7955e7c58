import assert from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import type { HttpContext, RouteCall } from "./http_context.ts";
import { DEFAULT_HTTP_OPTIONS } from "./http_options.ts";
import { InMemoryFacade, memoryRequest, responseText } from "./in_memory_facade.ts";
import {
  getCudaSharedMemory,
  getSystemSharedMemory,
  registerCudaSharedMemory,
  registerSystemSharedMemory,
  unregisterCudaSharedMemory,
  unregisterSystemSharedMemory,
} from "./shared_memory_routes.ts";

const HANDLE = btoa(String.fromCharCode(...new Uint8Array(64).keys()));

function setUp() {
  const api = new InMemoryFacade([]);
  const context = { api, options: DEFAULT_HTTP_OPTIONS } as unknown as HttpContext;
  const call = async (route: RouteCall, region: string, body = ""): Promise<HttpResponse> => {
    const request: HttpRequest = memoryRequest("POST", "/", { body });
    return await route(context, request, { model: "", version: "", region, repository: "" });
  };
  return { api, call };
}

function refuses(call: Promise<unknown>, message: string | RegExp, code = "INVALID_ARG") {
  return assert.rejects(call, (error) => {
    assert.ok(error instanceof ServerError);
    assert.equal(error.code, code);
    if (typeof message === "string") assert.equal(error.message, message);
    else assert.match(error.message, message);
    return true;
  });
}

Deno.test("registerSystemSharedMemory() passes a region on, exact to the last bit", async () => {
  const { api, call } = setUp();
  const body = '{"key":"/k","offset":18446744073709551615,"byte_size":64,"more":1}';
  const response = await call(registerSystemSharedMemory, "r", body);
  assert.equal(response.status, 200);
  assert.equal(responseText(response), "");
  await call(registerSystemSharedMemory, "s", '{"key":"/k","byte_size":9007199254740993}');
  assert.deepEqual(api.regions, [
    { kind: "system", name: "r", key: "/k", offset: 18446744073709551615n, byteSize: 64n },
    { kind: "system", name: "s", key: "/k", offset: 0n, byteSize: 9007199254740993n },
  ]);
  const status = await call(getSystemSharedMemory, "s");
  const expected = '[{"name":"s","key":"/k","offset":0,"byte_size":9007199254740993}]';
  assert.equal(responseText(status), expected);
});

Deno.test("registerSystemSharedMemory() says what is missing or of the wrong type", async () => {
  const { api, call } = setUp();
  const system = (region: string, body: string) => call(registerSystemSharedMemory, region, body);
  const missing = (name: string) => `Shared memory register request has no '${name}' field`;
  const noName = "'region name' is necessary to register system shared memory region";
  await refuses(system("", "{}"), noName);
  await refuses(system("r", ""), missing("key"));
  await refuses(system("r", '{"key":"/k"}'), missing("byte_size"));
  await refuses(system("r", '{"key":1,"byte_size":1}'), /Unable to parse 'key'.*non-string/);
  for (const size of ['"64"', "-1", "1.5", "18446744073709551616", "null"]) {
    const body = `{"key":"/k","byte_size":${size}}`;
    await refuses(system("r", body), /Unable to parse 'byte_size'.*non-unsigned-integer/);
  }
  await refuses(system("r", "[]"), /non-object as object/);
  assert.deepEqual(api.regions, []);
});

Deno.test("registerCudaSharedMemory() passes the decoded handle on", async () => {
  const { api, call } = setUp();
  const body = `{"raw_handle":{"b64":"${HANDLE}"},"device_id":1,"byte_size":64}`;
  await call(registerCudaSharedMemory, "g", body);
  assert.deepEqual(api.rawHandles, [new Uint8Array(64).map((_, index) => index)]);
  const status = await call(getCudaSharedMemory, "");
  assert.equal(responseText(status), '[{"name":"g","device_id":1,"byte_size":64}]');
  assert.equal(responseText(await call(getSystemSharedMemory, "")), "[]");
});

Deno.test("registerCudaSharedMemory() says what is missing or of the wrong type", async () => {
  const { call } = setUp();
  const cuda = (body: string) => call(registerCudaSharedMemory, "g", body);
  const missing = (name: string) => `Shared memory register request has no '${name}' field`;
  await refuses(cuda('{"device_id":0}'), missing("raw_handle"));
  await refuses(cuda('{"raw_handle":"AAAA"}'), /'raw_handle'.*non-object/);
  await refuses(cuda('{"raw_handle":{}}'), missing("b64"));
  await refuses(cuda('{"raw_handle":{"b64":"AAAA"}}'), missing("byte_size"));
  await refuses(
    cuda('{"raw_handle":{"b64":"AAAA"},"byte_size":64,"device_id":0}'),
    "'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t",
  );
});

Deno.test("register routes tell that shared memory is off before they read anything", async () => {
  const { api, call } = setUp();
  api.allowsSharedMemory = false;
  const text = /^Client shared memory is disabled/;
  await refuses(call(registerSystemSharedMemory, "r", "no JSON"), text, "UNSUPPORTED");
  await refuses(call(registerCudaSharedMemory, "r", "no JSON"), text, "UNSUPPORTED");
});

Deno.test("unregister routes name the kind and the region", async () => {
  const { api, call } = setUp();
  assert.equal((await call(unregisterSystemSharedMemory, "r")).status, 200);
  await call(unregisterCudaSharedMemory, "");
  assert.deepEqual(api.unregistered, [["system", "r"], ["cuda", ""]]);
});
