import { equal, throws } from "node:assert/strict";
import { autofillBackend, parseModelConfig } from "./model_config.ts";

Deno.test("autofillBackend() finds backend, platform and file name", () => {
  const fill = (text: string, entries: string[], name = "m") => {
    const { config } = parseModelConfig(text, "c");
    autofillBackend(config, { name, versionEntries: entries });
    return [config.backend, config.platform, config.defaultModelFilename].join(" ");
  };
  equal(fill("", ["model.onnx", "x"]), "onnxruntime onnxruntime_onnx model.onnx");
  equal(fill("", ["model.onnx", "model.plan"]), "tensorrt tensorrt_plan model.plan");
  equal(
    fill(`backend: "onnxruntime"`, ["model.plan"]),
    "onnxruntime onnxruntime_onnx model.onnx",
  );
  equal(
    fill(`platform: "onnxruntime_onnx" default_model_filename: "n.onnx"`, []),
    "onnxruntime onnxruntime_onnx n.onnx",
  );
  equal(fill(`platform: "libtorch"`, []), "pytorch pytorch_libtorch model.pt");
  equal(fill("", ["model.py"]), "python  model.py");
  equal(fill("", ["model.ts"]), "typescript  model.ts");
  equal(fill(`backend: "identity"`, []), "identity  ");
  equal(fill("", [], "m.identity"), "identity  model.identity");
  equal(fill(`default_model_filename: "network.onnx"`, ["network.onnx"]), "  network.onnx");
  equal(fill(`platform: "ensemble"`, []), " ensemble ");
});

Deno.test("autofillBackend() says what a version folder without a known file should hold", () => {
  const fill = (entries: string[], name = "m") => {
    const { config } = parseModelConfig("", "c");
    autofillBackend(config, { name, versionEntries: entries });
  };
  throws(() => fill(["other.onnx"]), {
    message:
      "Invalid model name: Could not determine backend for model 'm' with no backend in model " +
      "configuration. Expected model name of the form 'model.<backend_name>'. " +
      "The version folder holds 'other.onnx': without a config.pbtxt the name is 'model.onnx'",
  });
  throws(
    () => fill(["net.pt"]),
    /holds 'net\.pt': without a config\.pbtxt the name is 'model\.pt'/,
  );
  throws(() => fill(["README"]), /'model\.<backend_name>'\.$/);
  throws(() => fill([]), /nor a file in a version folder, such as m\/1\/model\.onnx, /);
  throws(() => fill([], "1"), /'1' looks like a version folder: --model-repository names/);
});
