import { Code, ConnectError } from "@connectrpc/connect";
import assert from "node:assert/strict";
import { ServerError, type StatusCode } from "../../proto/status.ts";
import { errorTrailers, percentEncode, toConnectError } from "./grpc_status.ts";

Deno.test("toConnectError() maps every code of the server", () => {
  const codes: [StatusCode, number][] = [
    ["UNKNOWN", 2],
    ["INTERNAL", 13],
    ["NOT_FOUND", 5],
    ["INVALID_ARG", 3],
    ["UNAVAILABLE", 14],
    ["UNSUPPORTED", 12],
    ["ALREADY_EXISTS", 6],
    ["CANCELLED", 1],
  ];
  for (const [code, status] of codes) {
    assert.equal(toConnectError(new ServerError(code, "x")).code, status);
  }
  assert.equal(toConnectError(new TypeError("x")).code, Code.Internal);
  assert.equal(toConnectError(new ConnectError("x", Code.DataLoss)).code, Code.DataLoss);
});

Deno.test("percentEncode() keeps printable ASCII and escapes the rest", () => {
  assert.equal(percentEncode("line one\nline two: 100% ż"), "line one%0Aline two: 100%25 %C5%BC");
});

Deno.test("percentEncode() cuts what would not fit, between characters", () => {
  for (const text of ["x", "ż", "🚀", "x🚀"]) {
    const encoded = percentEncode(text.repeat(6001));
    assert.equal(encoded.length <= 6015, true);
    assert.equal(decodeURIComponent(encoded).endsWith("..."), true);
  }
});

Deno.test("errorTrailers() leaves an empty message out", () => {
  assert.deepEqual(errorTrailers(new ServerError("NOT_FOUND", "")), [["grpc-status", "5"]]);
});
