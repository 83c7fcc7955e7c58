import { Code } from "@connectrpc/connect";
import assert from "node:assert/strict";
import { parseGrpcTimeout } from "./grpc_timeout.ts";

Deno.test("parseGrpcTimeout() knows every unit", () => {
  const cases: [string, number][] = [
    ["1H", 3_600_000],
    ["2M", 120_000],
    ["3S", 3_000],
    ["0S", 0],
    ["99999999m", 99_999_999],
    ["500u", 0.5],
    ["1n", 0.000001],
  ];
  for (const [text, expected] of cases) assert.equal(parseGrpcTimeout(text), expected, text);
});

Deno.test("parseGrpcTimeout() refuses everything else", () => {
  for (const text of ["", "S", "1", "1s", "-1S", "1.5S", "123456789S", " 1S", "1S ", "1e3S"]) {
    assert.throws(() => parseGrpcTimeout(text), { code: Code.Internal }, text);
  }
});
