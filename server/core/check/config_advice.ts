import type { ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import type { ConfigIssue } from "../../../proto/model_config.ts";
import { PLATFORM_BACKENDS } from "../../../proto/model_config_autofill.ts";
import { typoOf } from "../../../proto/model_config_hint.ts";
import { isEnsemble } from "../../../proto/model_config_normalize.ts";

/** Names under which people know ONNX Runtime. */
const ONNX_NAMES = ["onnx", "ort", "onnx_runtime", "onnxruntime_onnx", "onnxrt"];
const ONNX_BACKEND = "onnxruntime";
const ONNX_PLATFORM = "onnxruntime_onnx";
const PREFERRED_SIZE =
  /^(?:dynamic_batching|sequence_batching\.oldest)\.preferred_batch_size\[(\d+)\]$/;
/** Fields that an ensemble cannot have and that would do nothing for it. */
const NOT_OF_ENSEMBLES: readonly string[] = ["instance_group", "optimization", "backend"];

/** What advice is drawn from besides the configuration. */
export interface AdviceContext {
  readonly config: ModelConfig;
  readonly backendNames: readonly string[];
  /** Names in the folder of the first version. */
  readonly versionEntries: readonly string[];
}

/** Adds to faults what the user most likely has to do, and the mend where it is the only one. */
export function adviseOnConfig(
  issues: readonly ConfigIssue[],
  context: AdviceContext,
): ConfigIssue[] {
  return issues.map((issue) => {
    if (issue.mend !== undefined) return issue;
    const advice = adviceOn(issue, context);
    if (advice.hint === undefined || issue.hint === undefined) return { ...issue, ...advice };
    return { ...issue, ...advice, hint: `${advice.hint} (${issue.hint})` };
  });
}

type Advice = Pick<ConfigIssue, "hint" | "mend">;

function adviceOn(issue: ConfigIssue, context: AdviceContext): Advice {
  const { path } = issue;
  if (PREFERRED_SIZE.test(path)) return adviceOnPreferredSize(path, context.config);
  if (isEnsemble(context.config)) return adviceOnEnsemble(issue, context.config);
  if (path === "backend") return adviceOnBackend(context);
  if (path === "platform") return adviceOnPlatform(context.config);
  if (path === "" && issue.message.includes("Could not determine backend")) {
    return adviceOnMissingBackend(context);
  }
  if (path === "name") {
    return { hint: "rename the folder, or take the name out of the file" };
  }
  return {};
}

/** No batch is ever larger than max_batch_size, so that a larger preferred size does nothing. */
function adviceOnPreferredSize(path: string, { maxBatchSize }: ModelConfig): Advice {
  if (maxBatchSize < 1) return { hint: "set max_batch_size, or take dynamic_batching out" };
  return {
    hint: `no batch has such a size: max_batch_size is ${maxBatchSize}`,
    mend: { fields: [{ path, value: undefined }] },
  };
}

function adviceOnEnsemble({ path, message }: ConfigIssue, config: ModelConfig): Advice {
  const isPlatformMissing = config.platform === "" && config.backend === "";
  if (isPlatformMissing && (path === "" || path === "ensemble_scheduling")) {
    return {
      hint: `an ensemble has platform: "ensemble"`,
      mend: { fields: [{ path: "platform", value: `"ensemble"` }] },
    };
  }
  if (!NOT_OF_ENSEMBLES.includes(path) || !/ensemble/i.test(message)) return {};
  return {
    hint: `take ${path} out: the models of the steps have their own`,
    mend: { fields: [{ path, value: undefined }] },
  };
}

function adviceOnBackend({ config, backendNames, versionEntries }: AdviceContext): Advice {
  const name = config.backend.toLowerCase();
  const isOnnx = ONNX_NAMES.includes(name) && versionEntries.includes("model.onnx");
  const meant = isOnnx ? ONNX_BACKEND : typoOf(config.backend, backendNames);
  if (meant === undefined || !backendNames.includes(meant)) return {};
  return {
    hint: `did you mean ${meant}?`,
    mend: { fields: [{ path: "backend", value: JSON.stringify(meant) }] },
  };
}

function adviceOnPlatform({ platform, backend }: ModelConfig): Advice {
  const platforms = [...PLATFORM_BACKENDS.keys()].filter((name) =>
    backend === "" || PLATFORM_BACKENDS.get(name) === backend
  );
  const owner = PLATFORM_BACKENDS.get(platform);
  if (owner !== undefined && backend !== "" && typoOf(backend, [owner]) !== undefined) {
    return {
      hint: `the backend of ${platform} is ${owner}`,
      mend: { fields: [{ path: "backend", value: JSON.stringify(owner) }] },
    };
  }
  // A platform of another backend that is right in itself contradicts the backend: one of both is wrong.
  if (owner !== undefined) return {};
  const isOnnx = [...ONNX_NAMES, ONNX_BACKEND].includes(platform.toLowerCase()) &&
    platforms.includes(ONNX_PLATFORM);
  const only = backend !== "" && platforms.length === 1 ? platforms[0] : undefined;
  const meant = isOnnx ? ONNX_PLATFORM : only ?? typoOf(platform, platforms);
  if (meant === undefined) return {};
  return {
    hint: `did you mean ${meant}?`,
    mend: { fields: [{ path: "platform", value: JSON.stringify(meant) }] },
  };
}

/** One ONNX file under another name says as much as one named model.onnx. */
function adviceOnMissingBackend({ versionEntries }: AdviceContext): Advice {
  const files = versionEntries.filter((entry) => entry.toLowerCase().endsWith(".onnx"));
  const [file] = files;
  if (file === undefined || files.length > 1) return {};
  return {
    mend: {
      fields: [
        { path: "backend", value: JSON.stringify(ONNX_BACKEND) },
        { path: "default_model_filename", value: JSON.stringify(file) },
      ],
    },
  };
}
