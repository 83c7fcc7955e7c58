import assert from "node:assert/strict";
import { chooseContentCoding, parseContentEncoding } from "./content_encoding.ts";

Deno.test("chooseContentCoding() takes the largest weight, the first of equals", () => {
  const cases: [string, string | undefined][] = [
    ["gzip", "gzip"],
    ["gzip, deflate, br", "gzip"],
    ["deflate, gzip", "deflate"],
    ["gzip;q=0.5, deflate;q=0.8", "deflate"],
    ["identity, gzip", undefined],
    ["gzip;q=0", undefined],
    ["br, zstd", undefined],
    ["*", undefined],
    ["", undefined],
    ["GZIP ; q=1", "gzip"],
    ["gzip;q=x, deflate;q=0.1", "deflate"],
  ];
  for (const [header, coding] of cases) assert.equal(chooseContentCoding(header), coding, header);
});

Deno.test("parseContentEncoding() knows one coding at a time", () => {
  assert.equal(parseContentEncoding(""), undefined);
  assert.equal(parseContentEncoding("identity"), undefined);
  assert.equal(parseContentEncoding(" Gzip"), "gzip");
  assert.equal(parseContentEncoding("deflate"), "deflate");
  assert.throws(() => parseContentEncoding("br"), { code: "UNSUPPORTED" });
  assert.throws(() => parseContentEncoding("gzip, deflate"), { code: "INVALID_ARG" });
});
