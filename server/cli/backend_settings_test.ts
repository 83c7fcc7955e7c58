import assert from "node:assert/strict";
import { settingsOf } from "./backend_settings.ts";

const CONFIG = new Map([
  ["", new Map([["a", "all"], ["b", "all"], ["c", "all"]])],
  ["python", new Map([["b", "python"], ["c", "python"]])],
  ["mine", new Map([["c", "mine"]])],
  ["onnxruntime", new Map([["c", "onnx"]])],
]);

Deno.test("settingsOf() lets the settings of a backend win over those of all", () => {
  assert.deepEqual([...settingsOf(CONFIG, "onnxruntime").values()], ["all", "all", "onnx"]);
  assert.deepEqual([...settingsOf(CONFIG, "python").values()], ["all", "python", "python"]);
  assert.deepEqual([...settingsOf(CONFIG, "identity").values()], ["all", "all", "all"]);
});

Deno.test("settingsOf() gives a backend in Python the settings of python too", () => {
  assert.deepEqual([...settingsOf(CONFIG, "mine").values()], ["all", "python", "mine"]);
});
