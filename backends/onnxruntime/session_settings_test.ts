import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { GRAPH_OPTIMIZATION } from "../../ffi/onnxruntime/mod.ts";
import { flagSetting, integerSetting } from "../onnx_setting_values.ts";
import { readModelSettings } from "./session_settings.ts";

function read(
  parameters: Record<string, string>,
  { level = 0, settings = {} }: {
    level?: number;
    settings?: Record<string, string>;
  } = {},
) {
  const config = create(ModelConfigSchema, {
    parameters: Object.fromEntries(
      Object.entries(parameters).map(([key, stringValue]) => [key, { stringValue }]),
    ),
    optimization: { graph: { level } },
  });
  const source = { name: "m", version: 1, modelDirectory: "", versionDirectory: "", config };
  return readModelSettings(source, new Map(Object.entries(settings)));
}

Deno.test("readModelSettings() reads the parameters of config.md", () => {
  const { session, runEntries } = read({
    intra_op_thread_count: "2 threads",
    inter_op_thread_count: "-1",
    execution_mode: "1",
    enable_mem_arena: "0",
    enable_mem_pattern: "false",
    "memory.enable_memory_arena_shrinkage": "cpu:0",
    "session.use_device_allocator_for_initializers": "1",
  });
  assert.equal(session.intraOpThreadCount, 2);
  assert.equal(session.interOpThreadCount, -1);
  assert.equal(session.parallelExecution, true);
  assert.equal(session.memoryArena, false);
  assert.equal(session.memoryPattern, false);
  assert.deepEqual(session.entries, {
    "session.intra_op.allow_spinning": "0",
    "session.x64quantprecision": "1",
    "session.use_device_allocator_for_initializers": "1",
  });
  assert.deepEqual(runEntries, { "memory.enable_memory_arena_shrinkage": "cpu:0" });
});

Deno.test("readModelSettings() lets threads spin only when the configuration says so", () => {
  const key = "session.intra_op.allow_spinning";
  assert.equal(read({}).session.entries?.[key], "0");
  assert.equal(read({ [key]: "1" }).session.entries?.[key], "1");
});

Deno.test("readModelSettings() asks for precision of quantized models unless the configuration says no", () => {
  const key = "session.x64quantprecision";
  assert.equal(read({}).session.entries?.[key], "1");
  assert.equal(read({ [key]: "0" }).session.entries?.[key], "0");
});

Deno.test("readModelSettings() translates the graph level", () => {
  const levels = [0, -1, 1, 2, 7].map((level) => read({}, { level }).session.graphOptimization);
  const { ALL, BASIC, EXTENDED, OFF } = GRAPH_OPTIMIZATION;
  assert.deepEqual(levels, [ALL, BASIC, EXTENDED, OFF, ALL]);
});

Deno.test("readModelSettings() prefers the model's thread count to the server's", () => {
  const settings = Object.fromEntries([["intra_op_thread_count", "3"]]);
  assert.equal(read({}, { settings }).session.intraOpThreadCount, 3);
  assert.equal(
    read({ intra_op_thread_count: "1" }, { settings }).session.intraOpThreadCount,
    1,
  );
});

const WRONG: [Record<string, string>, RegExp][] = [
  [{ intra_op_thread_count: "two" }, /'two' to integral number.*'intra_op_thread_count'/],
  [{ inter_op_thread_count: "9999999999" }, /'inter_op_thread_count'/],
  [{ execution_mode: "5" }, /'execution_mode'.*0 or 1 but got 5/],
  [{ enable_mem_arena: "no" }, /'no' to boolean.*'enable_mem_arena'/],
];

for (const [parameters, message] of WRONG) {
  Deno.test(`readModelSettings() refuses ${JSON.stringify(parameters)}`, () => {
    assert.throws(() => read(parameters), { code: "INVALID_ARG", message });
  });
}

Deno.test("settings of the server are read as numbers and truth values", () => {
  const settings = new Map([["a", "4"], ["b", "1"], ["c", "many"]]);
  assert.equal(integerSetting(settings, "a"), 4);
  assert.equal(integerSetting(settings, "none"), undefined);
  assert.equal(flagSetting(settings, "b"), true);
  assert.throws(() => integerSetting(settings, "c"), /'many'.*'c'/);
});
