import assert from "node:assert/strict";
import type { HeaderField } from "./hpack.ts";
import { RequestHeadParser } from "./http2_request_head.ts";

function parse(contentType: string, ...fields: readonly HeaderField[]) {
  return new RequestHeadParser().parse([
    [":method", "POST"],
    [":scheme", "http"],
    [":path", "/p"],
    ["content-type", contentType],
    ...fields,
  ]);
}

Deno.test("RequestHeadParser takes white space around gRPC metadata as it is, and nowhere else", () => {
  for (const value of [" a", "a ", "\ta", "a\\\t", " "]) {
    const head = parse("application/grpc", ["x", value]);
    assert.equal(head?.isRpc, true);
    assert.equal(head.headers.get("x"), value);
    assert.equal(parse("application/json", ["x", value]), undefined, JSON.stringify(value));
  }
  assert.equal(parse("application/grpc", ["content-length", "1 "]), undefined);
  assert.equal(parse(" application/grpc", ["x", "a"]), undefined);
  assert.equal(parse("application/json", ["x", ""])?.headers.get("x"), "");
  const padded: HeaderField[] = [[":method", "GET"], [":scheme", "http"], [":path", "/p "]];
  assert.equal(new RequestHeadParser().parse(padded), undefined);
});
