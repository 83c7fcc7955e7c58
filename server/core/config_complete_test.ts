import { deepEqual, equal, rejects, throws } from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import type { Backend } from "../../backends/backend.ts";
import {
  DataType,
  ModelDynamicBatchingSchema,
  ModelInputSchema,
} from "../../proto/gen/model_config_pb.ts";
import { normalizeModelConfig, parseModelConfig } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import {
  checkDefaultBatchSize,
  completeModelConfig,
  unknownBackendError,
} from "./config_complete.ts";
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "./options.ts";

const START = `name: "m" backend: "onnxruntime" platform: "onnxruntime_onnx" `;

function backendThat(complete: Backend["autoComplete"]): Backend {
  return {
    name: "onnxruntime",
    preference: { kind: "KIND_CPU", count: 2 },
    autoComplete: complete,
    openModel: ({ config }) =>
      config.input.length > 5
        ? Promise.reject(new ServerError("INVALID_ARG", "configuration expects 6 inputs"))
        : Promise.resolve({
          createInstance: () => Promise.reject(new Error("Not asked for")),
          [Symbol.asyncDispose]: () => Promise.resolve(),
        }),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

async function complete(
  text: string,
  autoComplete: Backend["autoComplete"] = () => Promise.resolve(),
  options: ServerOptions = DEFAULT_SERVER_OPTIONS,
  modelDirectory = "/nonexistent/m",
  runtime?: string,
) {
  const { config, positions } = parseModelConfig(START + text, "m/config.pbtxt");
  normalizeModelConfig(config);
  const source = {
    name: "m",
    version: 1,
    modelDirectory,
    versionDirectory: `${modelDirectory}/1`,
    config,
    positions,
  };
  await completeModelConfig(source, { ...backendThat(autoComplete), runtime }, options);
  return config;
}

Deno.test("completeModelConfig() normalises again what the backend filled in", async () => {
  const config = await complete("", ({ config }) => {
    config.maxBatchSize = 8;
    config.schedulingChoice = {
      case: "dynamicBatching",
      value: create(ModelDynamicBatchingSchema),
    };
    return Promise.resolve();
  });
  const scheduling = config.schedulingChoice;
  equal(scheduling.case, "dynamicBatching");
  if (scheduling.case === "dynamicBatching") deepEqual(scheduling.value.preferredBatchSize, [8]);
  deepEqual(config.instanceGroup.map(({ name, count }) => [name, count]), [["m", 2]]);
});

Deno.test("completeModelConfig() reports all that is wrong in one error", async () => {
  await rejects(
    complete(
      `instance_group { kind: KIND_GPU } output { name: "B" dims: 1 }`,
      ({ config }) => {
        config.input.push(
          create(ModelInputSchema, { name: "A", dims: [-2n], dataType: DataType.TYPE_FP32 }),
        );
        throw new ServerError("INTERNAL", "failed to stat file 1/model.onnx");
      },
    ),
    (error: ServerError) => {
      equal(error.code, "INVALID_ARG");
      deepEqual(error.message.split("\n  ").map((line) => line.slice(0, 60)), [
        "instance group m_0 of model m has kind KIND_GPU but no GPUs ",
        "failed to stat file 1/model.onnx (m/config.pbtxt)",
        "model input 'A' dimension must be integer >= 1, or -1 to ind",
        "model output 'B' must specify 'data_type' for m (m/config.pb",
      ]);
      return true;
    },
  );
});

Deno.test("completeModelConfig() takes an empty dimension from a model that does not batch", async () => {
  const tensor = { name: "A", dims: [3n, 0n], dataType: DataType.TYPE_FP32 };
  const fill = (maxBatchSize: number): Backend["autoComplete"] => ({ config }) => {
    config.maxBatchSize = maxBatchSize;
    config.input = [create(ModelInputSchema, tensor)];
    return Promise.resolve();
  };
  deepEqual((await complete("", fill(0))).input[0]?.dims, [3n, 0n]);
  await rejects(complete("", fill(4)), /model input 'A' dimension must be integer >= 1, or -1/);
  await rejects(
    complete(`input { name: "A" data_type: TYPE_FP32 dims: [ 3, 0 ] }`, fill(0)),
    /model input 'A' dimension must be integer >= 1, or -1/,
  );
});

Deno.test("completeModelConfig() does not ask the backend in strict mode or for a path outside", async () => {
  const never = () => Promise.reject(new Error("Was asked"));
  await complete("", never, { ...DEFAULT_SERVER_OPTIONS, autoCompleteConfig: false });
  await rejects(
    complete(`default_model_filename: "../x"`, never),
    /^ServerError: model file path '\.\.\/x' in model 'm' is outside model directory/,
  );
});

Deno.test("completeModelConfig() names the file of a backend that is one as the runtime", async () => {
  const withFile = (text: string) => complete(text, undefined, undefined, undefined, "model.py");
  equal((await withFile("")).runtime, "model.py");
  equal((await withFile(`runtime: "model.py"`)).runtime, "model.py");
  await rejects(withFile(`runtime: "libtriton_onnxruntime.so"`), /unable to find backend library/);
  await rejects(complete(`runtime: "model.py"`), /unable to find backend library 'model\.py'/);
  equal((await complete("")).runtime, "");
});

Deno.test("completeModelConfig() refuses other runtimes, batching libraries and missing labels", async () => {
  await complete(`runtime: "libtriton_onnxruntime.so"`);
  await rejects(
    complete(`runtime: "libtriton_x.so"`),
    /unable to find backend library 'libtriton_x\.so' for model 'm', searched: /,
  );
  await rejects(
    complete(`runtime: "../libtriton_x.so"`),
    /backend library name '\.\.\/libtriton_x\.so' escapes backend directory/,
  );
  await rejects(
    complete(
      `parameters { key: "TRITON_BATCH_STRATEGY_PATH" value { string_value: "/nowhere/x.so" } }`,
    ),
    new RegExp("Batching library path not found: /nowhere/x.so"),
  );
  await rejects(
    complete(`output { name: "B" data_type: TYPE_FP32 dims: 1 label_filename: "l.txt" }`),
    /failed to open text file for read m\/l\.txt: No such file or directory/,
  );
});

Deno.test("completeModelConfig() checks the files of initial states", async () => {
  const directory = await Deno.makeTempDir();
  try {
    await Deno.mkdir(`${directory}/initial_state`);
    await Deno.writeFile(`${directory}/initial_state/short`, new Uint8Array(7));
    const stateFrom = (file: string) =>
      complete(
        `sequence_batching { state { input_name: "S" data_type: TYPE_FP32 dims: 2 initial_state {
           name: "s" data_type: TYPE_FP32 dims: 2 data_file: "${file}" } } }`,
        () => Promise.resolve(),
        DEFAULT_SERVER_OPTIONS,
        directory,
      );
    await rejects(stateFrom("none"), /for read m\/initial_state\/none: No such file/);
    await rejects(
      stateFrom("short"),
      /initial_state setting expects 8 bytes, but the data provided from shortonly has 7 bytes\./,
    );
    await rejects(stateFrom("../x"), /file path '\.\.\/x' for state input 'S' is outside/);
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
});

Deno.test("checkDefaultBatchSize() looks at the backend's setting, else at the global one", () => {
  const options = (settings: Record<string, string>): ServerOptions => ({
    ...DEFAULT_SERVER_OPTIONS,
    backendConfig: new Map(
      Object.entries(settings).map(([name, value]) => [
        name,
        new Map([["default-max-batch-size", value]]),
      ]),
    ),
  });
  for (const settings of [{}, { "": "7" }, { "": "many", onnxruntime: "-2" }]) {
    checkDefaultBatchSize(options(settings), "onnxruntime");
  }
  for (const settings of [{ "": "many" }, { "": "7", onnxruntime: "many" }]) {
    throws(
      () => checkDefaultBatchSize(options(settings), "onnxruntime"),
      /failed to convert 'many' to integral number/,
    );
  }
});

Deno.test("unknownBackendError() names the backends there are", () => {
  const { config } = parseModelConfig(`name: "m" backend: "tensorrt"`, "c");
  equal(
    unknownBackendError(config, ["onnxruntime"]).message,
    "unable to find backend library for backend 'tensorrt', try specifying runtime on the model " +
      "configuration. (backend); this server has the backends onnxruntime, and those that are a " +
      "folder of --backend-directory with a model.py",
  );
});
