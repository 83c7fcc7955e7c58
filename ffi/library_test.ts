import assert from "node:assert/strict";
import { type LibraryNotFoundError, openLibrary } from "./library.ts";

Deno.test("openLibrary() lists every place it tried", () => {
  const open = () =>
    openLibrary("the example library", {
      candidates: [
        { origin: "configuration", path: "/nowhere/libexample.so" },
        { origin: "system library", path: "libexample-that-is-not-there.so" },
      ],
      attempts: [{ origin: "environment variable EXAMPLE", path: "", reason: "not set" }],
      symbols: {},
    });
  assert.throws(open, (error: LibraryNotFoundError) => {
    assert.equal(error.name, "LibraryNotFoundError");
    assert.match(error.message, /^Cannot open the example library; tried: environment variable/);
    assert.match(error.message, /EXAMPLE: not set; configuration: '\/nowhere\/libexample.so': /);
    assert.deepEqual(error.attempts.map(({ origin }) => origin), [
      "environment variable EXAMPLE",
      "configuration",
      "system library",
    ]);
    return true;
  });
});

Deno.test({
  name: "openLibrary() takes the first candidate that opens",
  ignore: Deno.build.os !== "linux",
  fn() {
    const { path, symbols } = openLibrary("the C library", {
      candidates: [
        { origin: "first", path: "/nowhere/libc.so" },
        { origin: "second", path: "libc.so.6" },
      ],
      symbols: { getpid: { parameters: [], result: "i32" } },
    });
    assert.equal(path, "libc.so.6");
    assert.equal(symbols.getpid(), Deno.pid);
  },
});
