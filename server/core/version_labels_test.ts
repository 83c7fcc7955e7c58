import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { findLabel, isLabelText, readVersionLabels } from "./version_labels.ts";

function read(text: string | undefined, versions: readonly number[] = [1, 2]) {
  const config = create(ModelConfigSchema, { name: "m" });
  if (text !== undefined) {
    config.parameters["version_labels"] = { stringValue: text } as never;
  }
  return readVersionLabels(config, versions);
}

Deno.test("readVersionLabels() reads pairs of label and version", () => {
  assert.equal(read(undefined).labels, undefined);
  assert.deepEqual(read("").labels, new Map());
  const { labels, issues } = read(" stable=1, canary = 2 ,");
  assert.deepEqual(issues, []);
  assert.deepEqual(labels, new Map([["stable", 1], ["canary", 2]]));
  assert.equal(findLabel(labels!, "canary"), 2);
  assert.equal(findLabel(labels!, "latest"), "latest");
  assert.equal(findLabel(labels!, "other"), undefined);
});

for (
  const [text, message] of [
    ["stable", "unexpected version label 'stable' for 'm'"],
    ["1=1", "unexpected version label '1=1' for 'm'"],
    ["a/b=1", "unexpected version label 'a/b=1' for 'm'"],
    ["stable=01", "unexpected version label 'stable=01' for 'm'"],
    ["stable=-1", "unexpected version label 'stable=-1' for 'm'"],
    ["latest=1", "version label 'latest' of 'm' cannot be given"],
    ["a=1,a=2", "version label 'a' is given twice for 'm'"],
    ["a=7", "version label 'a' of 'm' names version 7, which is not served"],
  ] as const
) {
  Deno.test(`readVersionLabels() refuses '${text}'`, () => {
    const { issues } = read(text);
    assert.equal(issues.length, 1);
    assert.equal(issues[0]!.message, message);
    assert.ok(issues[0]!.hint);
  });
}

Deno.test("isLabelText() never takes a number for a label", () => {
  for (const text of ["stable", "v1", "a-b.c_d"]) assert.equal(isLabelText(text), true);
  for (const text of ["", "1", "-1", "+1", " 1", "1a", "a/b", "ä", "x".repeat(64)]) {
    assert.equal(isLabelText(text), false);
  }
});
