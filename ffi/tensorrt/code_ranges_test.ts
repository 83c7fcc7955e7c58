import assert from "node:assert/strict";
import { isCode, parseCodeRanges } from "./code_ranges.ts";

const MAPS = `55d0-55d8 r--p 00000000 08:01 17 /usr/bin/deno
7f00-7f10 r--p 00000000 08:01 42 /opt/a b/libnvinfer.so.10
7f10-7f20 r-xp 00010000 08:01 42 /opt/a b/libnvinfer.so.10
7f20-7f30 rw-p 00020000 08:01 42 /opt/a b/libnvinfer.so.10
7f30-7f40 r-xp 00030000 08:01 42 /opt/a b/libnvinfer.so.10
7f50-7f60 r-xp 00000000 08:01 43 /lib/libc.so.6
7f70-7f80 r-xp 00000000 00:00 0
`;

Deno.test("parseCodeRanges() finds all code of the library an address belongs to", () => {
  const ranges = parseCodeRanges(MAPS, 0x7f11n);
  assert.deepEqual(ranges, [{ start: 0x7f10n, end: 0x7f20n }, { start: 0x7f30n, end: 0x7f40n }]);
  assert.ok(isCode(ranges, 0x7f3fn));
  for (const address of [0x7f20n, 0x7f40n, 0x7f55n, 0n]) assert.ok(!isCode(ranges, address));
  assert.deepEqual(parseCodeRanges(MAPS, 0x7f05n), []);
  assert.deepEqual(parseCodeRanges("", 1n), []);
});
