import { create } from "@bufbuild/protobuf";
import { fromText } from "@bufbuild/protobuf/txtpb";
import { type ModelConfig, ModelConfigSchema } from "./gen/model_config_pb.ts";
import type { ConfigIssue, ConfigPositions } from "./model_config_issue.ts";
import { scanConfigText } from "./model_config_text.ts";

export {
  configError,
  type ConfigIssue,
  type ConfigPosition,
  type ConfigPositions,
  formatConfigIssue,
} from "./model_config_issue.ts";
export { formatModelConfigJson, parseModelConfigJson } from "./model_config_json.ts";
export { normalizeInstanceGroups, normalizeModelConfig } from "./model_config_normalize.ts";
export { checkModelConfig, type CheckOptions } from "./model_config_check.ts";
export { checkModelIo } from "./model_config_check_io.ts";
export { checkInstanceGroups } from "./model_config_check_group.ts";
export { autofillBackend } from "./model_config_autofill.ts";

/** A configuration as it was written. With issues `config` is empty: no part of a faulty file is used. */
export interface ParsedModelConfig {
  readonly config: ModelConfig;
  readonly issues: readonly ConfigIssue[];
  readonly positions: ConfigPositions;
}

/** Reads a `config.pbtxt`. Never throws: all faults come back as issues with their places. */
export function parseModelConfig(text: string, fileName: string): ParsedModelConfig {
  const scan = scanConfigText(text, ModelConfigSchema);
  const positions = { fileName, byPath: scan.positions };
  if (scan.issues.length > 0) {
    return { config: create(ModelConfigSchema), issues: scan.issues, positions };
  }
  try {
    return { config: fromText(ModelConfigSchema, text), issues: [], positions };
  } catch (reason) {
    // The library is the judge of what is valid; this is what it refuses beyond our own scan.
    const message = reason instanceof Error ? reason.message : String(reason);
    const issue = { path: "", message: `${fileName}: ${message}` };
    return { config: create(ModelConfigSchema), issues: [issue], positions };
  }
}
