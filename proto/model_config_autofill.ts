import type { ModelConfig } from "./gen/model_config_pb.ts";
import { ServerError } from "./status.ts";

/** One kind of model file, and what it says about its backend (config.md §4). */
interface FileRule {
  readonly backend: string;
  /** "" = the backend has no platform. */
  readonly platform: string;
  readonly platformAliases?: readonly string[];
  readonly fileName: string;
}

const FILE_RULES: readonly FileRule[] = [
  { backend: "tensorflow", platform: "tensorflow_savedmodel", fileName: "model.savedmodel" },
  { backend: "tensorflow", platform: "tensorflow_graphdef", fileName: "model.graphdef" },
  { backend: "tensorrt", platform: "tensorrt_plan", fileName: "model.plan" },
  { backend: "onnxruntime", platform: "onnxruntime_onnx", fileName: "model.onnx" },
  { backend: "openvino", platform: "", fileName: "model.xml" },
  {
    backend: "pytorch",
    platform: "pytorch_libtorch",
    platformAliases: ["libtorch"],
    fileName: "model.pt",
  },
  { backend: "pytorch", platform: "torch_aoti", fileName: "model.pt2" },
  { backend: "python", platform: "", fileName: "model.py" },
  { backend: "typescript", platform: "", fileName: "model.ts" },
];

/** Platform names and the only backend that may go with each. */
export const PLATFORM_BACKENDS: ReadonlyMap<string, string> = new Map(
  FILE_RULES.filter((rule) => rule.platform !== "").map((rule) => [rule.platform, rule.backend]),
);

/** Backends that are known by a kind of file. */
export const FILE_BACKENDS: ReadonlySet<string> = new Set(FILE_RULES.map(({ backend }) => backend));

/**
 * Fills in backend, platform and default file name from each other and from the names in the model's first version
 * directory, in place.
 * @throws ServerError INVALID_ARG when nothing tells the backend.
 */
export function autofillBackend(
  config: ModelConfig,
  model: { readonly name: string; readonly versionEntries: readonly string[] },
): void {
  const rule = findRule(config, model.versionEntries);
  if (rule !== undefined) {
    config.backend = rule.backend;
    if (rule.platformAliases?.includes(config.platform)) config.platform = rule.platform;
    if (config.platform === "") config.platform = rule.platform;
    if (config.defaultModelFilename === "") config.defaultModelFilename = rule.fileName;
    return;
  }
  if (config.backend !== "" || config.platform !== "" || config.defaultModelFilename !== "") return;
  const dot = model.name.indexOf(".");
  if (dot < 0 || dot === model.name.length - 1) {
    throw new ServerError(
      "INVALID_ARG",
      `Invalid model name: Could not determine backend for model '${model.name}' with no backend in ` +
        `model configuration. Expected model name of the form 'model.<backend_name>'.` +
        unknownBackendHint(model.name, model.versionEntries),
    );
  }
  config.backend = model.name.slice(dot + 1);
  config.defaultModelFilename = `model.${config.backend}`;
}

function unknownBackendHint(name: string, entries: readonly string[]): string {
  if (/^\d+$/.test(name)) {
    return ` '${name}' looks like a version folder: --model-repository names the folder that ` +
      "holds the folders of models";
  }
  if (entries.length === 0) {
    return " There is neither a config.pbtxt nor a file in a version folder, such as " +
      `${name}/1/model.onnx, model.py or model.ts`;
  }
  for (const { fileName } of FILE_RULES) {
    const ending = fileName.slice(fileName.indexOf("."));
    const file = entries.find((entry) => entry.toLowerCase().endsWith(ending));
    if (file === undefined) continue;
    return ` The version folder holds '${file}': without a config.pbtxt the name is '${fileName}'`;
  }
  return "";
}

function findRule(config: ModelConfig, entries: readonly string[]): FileRule | undefined {
  const rules = config.backend === ""
    ? FILE_RULES
    : FILE_RULES.filter((rule) => rule.backend === config.backend);
  if (config.platform !== "") {
    return rules.find((rule) =>
      rule.platform === config.platform || rule.platformAliases?.includes(config.platform)
    );
  }
  if (config.defaultModelFilename !== "") {
    const named = rules.find((rule) => rule.fileName === config.defaultModelFilename);
    return named ?? (config.backend === "" ? undefined : rules[0]);
  }
  const found = rules.find((rule) => entries.includes(rule.fileName));
  return found ?? (config.backend === "" ? undefined : rules[0]);
}
