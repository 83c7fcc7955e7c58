import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { readTensorFlowSettings } from "./settings.ts";

function read(
  parameters: Record<string, string>,
  { level, settings = {}, libraries = [] }: {
    level?: number;
    settings?: Record<string, string>;
    libraries?: string[];
  } = {},
) {
  const config = create(ModelConfigSchema, {
    name: "m",
    parameters: Object.fromEntries(
      Object.entries(parameters).map(([key, stringValue]) => [key, { stringValue }]),
    ),
    modelOperations: { opLibraryFilename: libraries },
    ...(level === undefined ? {} : { optimization: { graph: { level } } }),
  });
  return readTensorFlowSettings(
    { config, name: "m", modelDirectory: "/models/m" },
    new Map(Object.entries(settings)),
  );
}

// ConfigProto: device_count {"GPU": 0}, intra 0, inter 0, allow_soft_placement, use_per_session_threads.
const NO_GPU = "0a070a034750551000";

Deno.test("readTensorFlowSettings() has defaults that use no GPU", () => {
  const settings = read({});
  assert.equal(settings.config.toHex(), `${NO_GPU}1000280038014800`);
  assert.equal(settings.sessionShareCount, 1);
  assert.deepEqual(settings.wish, { tag: "", signature: "" });
  assert.equal(settings.initOpsFile, "");
});

Deno.test("readTensorFlowSettings() takes threads, graph level and settings", () => {
  const parameters = {
    TF_NUM_INTRA_THREADS: "3",
    TF_NUM_INTER_THREADS: "5",
    TF_USE_PER_SESSION_THREADS: "On",
  };
  const more = { level: 1, settings: { "allow-soft-placement": "false" } };
  assert.equal(
    read(parameters, more).config.toHex(),
    `${NO_GPU}100328053800480152041a022801`,
  );
});

Deno.test("readTensorFlowSettings() takes names", () => {
  const settings = read({
    TF_GRAPH_TAG: "cpu",
    TF_SIGNATURE_DEF: "predict",
    TF_INIT_OPS_FILE: "init.json",
    MAX_SESSION_SHARE_COUNT: "4",
  }, { libraries: ["libmine.so"] });
  assert.deepEqual(settings.wish, { tag: "cpu", signature: "predict" });
  assert.equal(settings.initOpsFile, "init.json");
  assert.equal(settings.sessionShareCount, 4);
  assert.deepEqual(settings.operatorLibraries, ["/models/m/libmine.so"]);
});

Deno.test("readTensorFlowSettings() refuses values that are none", () => {
  const cases: [string, string, RegExp][] = [
    ["TF_NUM_INTRA_THREADS", "many", /failed to convert 'many' to integral number/],
    ["TF_NUM_INTER_THREADS", "-2", /from 0 on, got '-2'/],
    ["MAX_SESSION_SHARE_COUNT", "0", /from 1 on, got '0'/],
    ["TF_USE_PER_SESSION_THREADS", "perhaps", /must be 'true', 'on' or '1'.*got 'perhaps'/],
    ["TF_INIT_OPS_FILE", "../../secret.json", /must name a file in the folder of the model/],
  ];
  for (const [key, value, expected] of cases) {
    assert.throws(() => read({ [key]: value }), (error: Error) => {
      assert.match(error.message, expected);
      assert.ok(error.message.includes(key), error.message);
      return true;
    });
  }
});

Deno.test("readTensorFlowSettings() refuses libraries outside of the model's folder", () => {
  assert.throws(
    () => read({}, { libraries: ["../other/libmine.so"] }),
    /op_library_filename '\.\.\/other\/libmine\.so' of model 'm' must not contain '\.\.'/,
  );
});
