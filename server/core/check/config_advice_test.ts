import { deepEqual, equal } from "node:assert/strict";
import { checkModelConfig, parseModelConfig } from "../../../proto/model_config.ts";
import { adviseOnConfig } from "./config_advice.ts";

const BACKEND_NAMES = ["onnxruntime", "identity"];

/** Mended fields of the first fault, and its hint. */
function advice(text: string, path?: string, message = "") {
  const { config } = parseModelConfig(text, "config.pbtxt");
  config.name = "m";
  const issues = path === undefined ? checkModelConfig(config) : [{ path, message }];
  const context = { config, backendNames: BACKEND_NAMES, versionEntries: ["model.onnx"] };
  const [first] = adviseOnConfig(issues, context);
  const mend = first?.mend;
  return { hint: first?.hint, fields: mend !== undefined && "fields" in mend ? mend.fields : [] };
}

Deno.test("adviseOnConfig() knows the backend that was meant", () => {
  const backend = (name: string) => advice(`backend: "${name}"`, "backend").fields[0]?.value;
  equal(backend("onnxruntim"), '"onnxruntime"');
  equal(backend("ONNX"), '"onnxruntime"');
  equal(backend("identiti"), '"identity"');
  equal(backend("caffe"), undefined);
  equal(backend(""), undefined);
});

Deno.test("adviseOnConfig() takes the platform that goes with the backend", () => {
  const platform = (text: string) => advice(text).fields[0];
  deepEqual(platform(`platform: "onnx" backend: "onnxruntime"`), {
    path: "platform",
    value: '"onnxruntime_onnx"',
  });
  deepEqual(platform(`platform: "onnxruntime_onnx" backend: "onnxruntim"`), {
    path: "backend",
    value: '"onnxruntime"',
  });
  equal(platform(`platform: "tensorrt_plan" backend: "onnxruntime"`), undefined, "which is right?");
});

Deno.test("adviseOnConfig() takes out only what cannot have an effect", () => {
  const preferred = (text: string) =>
    advice(`backend: "b" ${text}`, "dynamic_batching.preferred_batch_size[0]");
  deepEqual(preferred("max_batch_size: 4").fields.length, 1);
  const without = preferred("");
  deepEqual(without.fields, []);
  equal(without.hint, "set max_batch_size, or take dynamic_batching out");
  const ensemble = `platform: "ensemble" ensemble_scheduling { }`;
  const message = "instance group should not be specified for ensemble 'm'";
  deepEqual(advice(ensemble, "instance_group", message).fields, [
    { path: "instance_group", value: undefined },
  ]);
  deepEqual(advice(ensemble, "model_warmup", message).fields, []);
});

Deno.test("adviseOnConfig() keeps the mend that a fault already has", () => {
  const { config } = parseModelConfig(`backend: "identiti"`, "config.pbtxt");
  const issue = { path: "backend", message: "", mend: { fields: [] } };
  const context = { config, backendNames: BACKEND_NAMES, versionEntries: [] };
  deepEqual(adviseOnConfig([issue], context), [issue]);
});
