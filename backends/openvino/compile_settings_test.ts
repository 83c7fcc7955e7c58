import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { type ModelConfig, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { readCompileSettings } from "./compile_settings.ts";

function read(
  parameters: Record<string, string>,
  { count, settings = {} }: { count?: number; settings?: Record<string, string> } = {},
) {
  const config: ModelConfig = create(ModelConfigSchema, {
    name: "m",
    parameters: Object.fromEntries(
      Object.entries(parameters).map(([key, stringValue]) => [key, { stringValue }]),
    ),
    ...(count === undefined ? {} : { instanceGroup: [{ count }] }),
  });
  return readCompileSettings(
    { config, modelDirectory: "/models/m" },
    new Map(Object.entries(settings)),
  );
}

Deno.test("readCompileSettings() computes with f32 on the CPU", () => {
  const { device, properties, extensionPath } = read({});
  assert.equal(device, "CPU");
  assert.deepEqual([...properties], [["INFERENCE_PRECISION_HINT", "f32"]]);
  assert.equal(extensionPath, undefined);
});

Deno.test("readCompileSettings() has a stream for each instance", () => {
  assert.equal(read({}, { count: 3 }).properties.get("NUM_STREAMS"), "3");
  assert.equal(read({ NUM_STREAMS: "1" }, { count: 3 }).properties.get("NUM_STREAMS"), "1");
});

Deno.test("readCompileSettings() lets parameters go before the server's settings, and leaves others alone", () => {
  const { device, properties, extensionPath } = read({
    INFERENCE_NUM_THREADS: "2",
    TARGET_DEVICE: "AUTO",
    CPU_EXTENSION_PATH: "libmine.so",
    ENABLE_BATCH_PADDING: "YES",
    author: "me",
  }, { settings: { CPU_THREADS_NUM: "1", library: "/x", INFERENCE_PRECISION_HINT: "bf16" } });
  assert.equal(device, "AUTO");
  assert.equal(extensionPath, "/models/m/libmine.so");
  assert.deepEqual(Object.fromEntries(properties), {
    INFERENCE_PRECISION_HINT: "bf16",
    INFERENCE_NUM_THREADS: "2",
  });
});

Deno.test("readCompileSettings() refuses more properties than it can pass on", () => {
  const many = Object.fromEntries(Array.from({ length: 9 }, (_, index) => [`KEY_${index}`, "1"]));
  assert.throws(() => read(many), /sets 10 properties of OpenVINO.*at most 8/);
});
