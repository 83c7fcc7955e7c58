import { deepEqual, equal, throws } from "node:assert/strict";
import { ServerError } from "../../proto/status.ts";
import { readOverrideFiles, writeOverrideFiles } from "./override_files.ts";

const BYTES = Uint8Array.of(1, 2, 3);

Deno.test("readOverrideFiles() takes files by their path inside of the model", () => {
  const files = readOverrideFiles("m", {
    "file:1/model.onnx": BYTES,
    "file:./labels.txt": BYTES,
    "file:1/./a/..b": BYTES,
  });
  deepEqual([...files!.keys()], ["1/model.onnx", "labels.txt", "1/a/..b"]);
  equal(readOverrideFiles("m", {}), undefined);
  const loose = { "file:/1/model.py": BYTES, "file://2//model.py": BYTES, "file:/etc/x": BYTES };
  deepEqual([...readOverrideFiles("m", loose)!.keys()], ["1/model.py", "2/model.py", "etc/x"]);
});

const PLACELESS = [
  "",
  "/",
  ".",
  "..",
  "../x",
  "1/../../x",
  "1/..",
  "/../x",
  "//..//x",
  "1/",
  "/1/",
  "1\\..\\x",
  "..\\x",
  "a\0b",
  "1/a\nb",
  "d/".repeat(16) + "x",
  "x".repeat(256),
  "é".repeat(128),
  Array(5).fill("y".repeat(250)).join("/"),
];

Deno.test("readOverrideFiles() refuses every path that leads nowhere in the model", () => {
  for (const path of PLACELESS) {
    throws(
      () => readOverrideFiles("m", { [`file:${path}`]: BYTES }),
      (error: unknown) =>
        error instanceof ServerError && error.code === "INVALID_ARG" &&
        // deno-lint-ignore no-control-regex
        !/[\0-\x1f]/.test(error.message) && error.message.length < 600,
      JSON.stringify(path),
    );
  }
});

Deno.test("readOverrideFiles() refuses paths that cannot be files side by side", () => {
  throws(
    () => readOverrideFiles("m", { "file:1": BYTES, "file:1/model.onnx": BYTES }),
    /needs a folder where '1' is a file/,
  );
  for (const twice of ["file:./a", "file:/a"]) {
    throws(
      () => readOverrideFiles("m", { "file:a": BYTES, [twice]: BYTES }),
      /another parameter names too/,
    );
  }
});

Deno.test("readOverrideFiles() bounds the number of files", () => {
  const many = Object.fromEntries(Array.from({ length: 1001 }, (_, i) => [`file:${i}`, BYTES]));
  throws(() => readOverrideFiles("m", many), /at most 1000 files/);
});

Deno.test("writeOverrideFiles() writes nothing but the files, with their folders", async () => {
  const root = await Deno.makeTempDir();
  try {
    await writeOverrideFiles(
      new Map([["1/model.onnx", BYTES], ["empty", new Uint8Array()]]),
      root,
    );
    deepEqual(await Deno.readFile(`${root}/1/model.onnx`), BYTES);
    equal((await Deno.stat(`${root}/empty`)).size, 0);
    const names = await Array.fromAsync(Deno.readDir(root), ({ name }) => name);
    deepEqual(names.sort(), ["1", "empty"]);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});
