import assert from "node:assert/strict";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import { createMetricsHandler } from "./metrics_server.ts";

function request(method: string, target: string): HttpRequest {
  return {
    method,
    target,
    headers: { get: () => undefined, entries: () => [] },
    httpVersion: "1.1",
    body: new Uint8Array(),
    signal: new AbortController().signal,
    arrivedMs: 0,
  };
}

function textOf({ body }: HttpResponse): string {
  return (body as Uint8Array[]).map((part) => new TextDecoder().decode(part)).join("");
}

const handler = createMetricsHandler(() => ({ versions: [] }));

for (const target of ["/metrics", "/metrics/", "/metrics?x=1"]) {
  Deno.test(`createMetricsHandler() serves ${target}`, async () => {
    assert.equal(handler.admit!(request("GET", target)), undefined);
    const response = await handler.handle(request("GET", target));
    assert.equal(response.status, 200);
    assert.deepEqual(response.headers, [["content-type", "text/plain; charset=utf-8"]]);
    assert.ok(textOf(response).includes("# TYPE nv_inference_count counter"));
  });
}

for (const [method, target, status] of [["POST", "/metrics", 405], ["GET", "/v2", 404]] as const) {
  Deno.test(`createMetricsHandler() answers ${status} to ${method} ${target}`, async () => {
    assert.equal(handler.admit!(request(method, target))?.status, status);
    const response = await handler.handle(request(method, target));
    assert.equal(response.status, status);
    assert.equal(
      textOf(response),
      status === 405 ? '{"error":"Method Not Allowed"}' : '{"error":"Not Found"}',
    );
  });
}
