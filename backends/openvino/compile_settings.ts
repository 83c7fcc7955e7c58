import { isAbsolute, join } from "node:path";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { configError } from "../../proto/model_config.ts";
import { MAX_PROPERTY_COUNT } from "../../ffi/openvino/mod.ts";
import type { BackendSettings, ModelSource } from "../backend.ts";

const DEFAULT_DEVICE = "CPU";
const EXTENSION_KEY = "CPU_EXTENSION_PATH";
const DEVICE_KEY = "TARGET_DEVICE";
/** Parameters of the reference's backend that change nothing here: shapes stay as free as the model has them. */
const NOT_NEEDED = new Set([
  "SKIP_OV_DYNAMIC_BATCHSIZE",
  "ENABLE_BATCH_PADDING",
  "RESHAPE_IO_LAYERS",
]);
/** Names of the reference's backend for what the runtime calls otherwise. */
const OTHER_NAMES: ReadonlyMap<string, string> = new Map([
  ["CPU_THREADS_NUM", "INFERENCE_NUM_THREADS"],
  ["CPU_THROUGHPUT_STREAMS", "NUM_STREAMS"],
]);
/** All properties of the runtime are written like this. */
const PROPERTY = /^[A-Z][A-Z0-9_]*$/;

/** Everything the configuration says about compiling one model. */
export interface CompileSettings {
  readonly device: string;
  readonly properties: ReadonlyMap<string, string>;
  /** Library with operators of the model. */
  readonly extensionPath: string | undefined;
}

/**
 * Reads the device and the runtime's properties from the parameters of a configuration; `--backend-config` gives those
 * that the model does not. Parameters written in other letters than capitals are not for the runtime.
 * @throws ServerError INVALID_ARG naming what is too much.
 */
export function readCompileSettings(
  { config, modelDirectory }: Pick<ModelSource, "config" | "modelDirectory">,
  settings: BackendSettings,
): CompileSettings {
  // A processor with bf16 would compute with it: other answers than on the next machine, by up to 0.4 in a probability.
  const properties = new Map([["INFERENCE_PRECISION_HINT", "f32"]]);
  const count = instanceCount(config);
  // As many runs at a time as there are instances: with one stream they would wait for each other.
  if (count > 1) properties.set("NUM_STREAMS", String(count));
  let device = DEFAULT_DEVICE;
  let extensionPath: string | undefined;
  const own = Object.entries(config.parameters).map(([key, value]) =>
    [key, value.stringValue] as const
  );
  for (const [key, value] of [...settings, ...own]) {
    if (!PROPERTY.test(key) || NOT_NEEDED.has(key) || value === "") continue;
    if (key === DEVICE_KEY) device = value;
    else if (key === EXTENSION_KEY) {
      extensionPath = isAbsolute(value) ? value : join(modelDirectory, value);
    } else properties.set(OTHER_NAMES.get(key) ?? key, value.replace(/^YES$/, "true"));
  }
  if (properties.size > MAX_PROPERTY_COUNT) {
    throw configError([{
      path: "parameters",
      message: `model '${config.name}' sets ${properties.size} properties of OpenVINO (` +
        `${[...properties.keys()].join(", ")}), at most ${MAX_PROPERTY_COUNT} are passed on`,
    }]);
  }
  return { device, properties, extensionPath };
}

function instanceCount(config: ModelConfig): number {
  return config.instanceGroup.reduce((sum, { count }) => sum + Math.max(count, 1), 0);
}
