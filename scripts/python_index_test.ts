import assert from "node:assert/strict";
import { findPythonIndex, isWheelOf } from "./python_index.ts";

const NOWHERE = "/nonexistent";

Deno.test("findPythonIndex() takes the address that pip would, then uv's", async () => {
  const find = (variables: Record<string, string>) => findPythonIndex((name) => variables[name]);
  assert.equal(
    await find({ PIP_INDEX_URL: "http://a/simple", UV_INDEX_URL: "b" }),
    "http://a/simple",
  );
  assert.equal(await find({ PIP_INDEX_URL: " ", UV_DEFAULT_INDEX: "http://b" }), "http://b");
  assert.equal(await find({ UV_INDEX_URL: "http://c" }), "http://c");
});

Deno.test("findPythonIndex() reads pip's configuration file", async () => {
  const file = await Deno.makeTempFile();
  try {
    await Deno.writeTextFile(file, "[global]\nextra-index-url = http://x\nindex-url = http://d/\n");
    const variables: Record<string, string> = { PIP_CONFIG_FILE: file, HOME: NOWHERE };
    assert.equal(await findPythonIndex((name) => variables[name]), "http://d/");
  } finally {
    await Deno.remove(file);
  }
});

Deno.test("isWheelOf() compares names as indexes do", () => {
  const source = { registry: "pip", name: "Some.Package", version: "1.2" } as const;
  const wanted = { ...source, license: "MIT", megabytes: 1 };
  assert.ok(isWheelOf("some_package-1.2-py3-none-any.whl", wanted));
  assert.ok(isWheelOf("some_package-1.2-cp311-cp311-manylinux_2_28_x86_64.whl", wanted));
  assert.ok(!isWheelOf("some_package-1.2.tar.gz", wanted));
  assert.ok(!isWheelOf("some_package-1.2.3-py3-none-any.whl", wanted));
  assert.ok(!isWheelOf("some_package_more-1.2-py3-none-any.whl", wanted));
});
