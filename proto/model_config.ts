import { create } from "@bufbuild/protobuf";
import { fromText } from "@bufbuild/protobuf/txtpb";
import { type ModelConfig, ModelConfigSchema } from "./gen/model_config_pb.ts";
import type { ConfigIssue, ConfigPositions } from "./model_config_issue.ts";
import { scanModelConfig } from "./model_config_scan.ts";

export {
  configError,
  type ConfigFaults,
  configFaults,
  type ConfigIssue,
  type ConfigMend,
  type ConfigPosition,
  type ConfigPositions,
  formatConfigIssue,
  placedError,
  positionOf,
  withoutConsequences,
} from "./model_config_issue.ts";
export { formatModelConfigJson, parseModelConfigJson } from "./model_config_json.ts";
export { normalizeInstanceGroups, normalizeModelConfig } from "./model_config_normalize.ts";
export { checkModelConfig } from "./model_config_check.ts";
export { checkModelIo } from "./model_config_check_io.ts";
export { checkInstanceGroups, type GpuMachine } from "./model_config_check_group.ts";
export { fixConfigText, mendConfigText } from "./model_config_fix.ts";
export { autofillBackend } from "./model_config_autofill.ts";

/** A configuration as it was written. */
export interface ParsedModelConfig {
  /** With issues: what could be read without the fields they are about, good only to look for further faults. */
  readonly config: ModelConfig;
  readonly issues: readonly ConfigIssue[];
  readonly positions: ConfigPositions;
}

/** Reads a `config.pbtxt`. Never throws: all faults come back as issues with their places. */
export function parseModelConfig(text: string, fileName: string): ParsedModelConfig {
  const scan = scanModelConfig(text);
  const positions = { fileName, byPath: scan.positions };
  try {
    const readable = scan.faultySpans === undefined ? "" : blankOut(text, scan.faultySpans);
    return { config: fromText(ModelConfigSchema, readable), issues: scan.issues, positions };
  } catch (reason) {
    const config = create(ModelConfigSchema);
    if (scan.issues.length > 0) return { config, issues: scan.issues, positions };
    // The library is the judge of what is valid; this is what it refuses beyond our own scan.
    const message = reason instanceof Error ? reason.message : String(reason);
    return { config, issues: [{ path: "", message: `${fileName}: ${message}` }], positions };
  }
}

function blankOut(text: string, spans: readonly (readonly [number, number])[]): string {
  let readable = text;
  for (const [begin, end] of spans) {
    const blank = readable.slice(begin, end).replace(/[^\n]/g, " ");
    readable = readable.slice(0, begin) + blank + readable.slice(end);
  }
  return readable;
}
