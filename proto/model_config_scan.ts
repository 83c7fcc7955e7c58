import { toText } from "@bufbuild/protobuf/txtpb";
import { ModelConfigSchema } from "./gen/model_config_pb.ts";
import type { ConfigMend } from "./model_config_issue.ts";
import { parseModelConfigJson } from "./model_config_json.ts";
import { scanConfigText, type TextScan } from "./model_config_text.ts";

const JSON_FILE = /^\s*\{/;

/** Scans the text of a `config.pbtxt`. */
export function scanModelConfig(text: string): TextScan {
  const scan = scanConfigText(text, ModelConfigSchema);
  const [first, ...others] = scan.issues;
  if (first === undefined || others.length > 0 || !JSON_FILE.test(text)) return scan;
  const mend = mendJson(text);
  if (mend === undefined) return scan;
  const { positions, spans, isCut, faultySpans } = scan;
  return { issues: [{ ...first, mend }], positions, spans, isCut, faultySpans };
}

/** JSON that says a configuration becomes the same in text format; JSON with faults at least loses its braces. */
function mendJson(text: string): ConfigMend | undefined {
  const { config, issues } = parseModelConfigJson(text);
  if (issues.length === 0) {
    return { edits: [{ begin: 0, end: text.length, text: toText(ModelConfigSchema, config) }] };
  }
  const open = text.indexOf("{");
  const close = text.lastIndexOf("}");
  if (close <= open || text.slice(close + 1).trim() !== "") return undefined;
  return {
    edits: [
      { begin: open, end: open + 1, text: "" },
      { begin: close, end: close + 1, text: "" },
    ],
  };
}
