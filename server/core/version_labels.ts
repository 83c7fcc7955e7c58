import type { ConfigIssue } from "../../proto/model_config.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";

/** The parameter of a configuration that names versions. */
export const LABELS_PARAMETER = "version_labels";
const LABELS_MAX = 100;
/** Never what a version looks like: paths and requests have both in the same place. */
const LABEL = /^[A-Za-z][A-Za-z0-9_.-]{0,62}$/;
const LATEST = "latest";
const EXAMPLE = "'stable=1,canary=2'";

/** Names of versions; undefined = the model has none, not even `latest`. */
export type VersionLabels = ReadonlyMap<string, number>;

/** What a configuration says about labels, and what is wrong with it. */
export interface ReadLabels {
  readonly labels: VersionLabels | undefined;
  readonly issues: readonly ConfigIssue[];
}

/**
 * Reads `parameters { key: "version_labels" value { string_value: "stable=1,canary=2" } }`: other names for versions in
 * paths and requests. A model that has the parameter also has the label `latest`, its highest READY version, which is
 * not in the map. `versions` are those that the version policy serves: each label must name one of them.
 */
export function readVersionLabels(config: ModelConfig, versions: readonly number[]): ReadLabels {
  const text = config.parameters[LABELS_PARAMETER]?.stringValue;
  if (text === undefined) return { labels: undefined, issues: [] };
  const labels = new Map<string, number>();
  const issues: ConfigIssue[] = [];
  const refuse = (message: string, hint: string) => {
    issues.push({ path: `parameters["${LABELS_PARAMETER}"]`, message, hint });
  };
  const pairs = text.split(",").map((pair) => pair.trim()).filter((pair) => pair !== "");
  if (pairs.length > LABELS_MAX) {
    refuse(`${pairs.length} version labels for '${config.name}'`, `at most ${LABELS_MAX} are kept`);
    return { labels, issues };
  }
  for (const pair of pairs) {
    const [, label = "", digits = ""] = /^([^=]*?)\s*=\s*(0|[1-9][0-9]{0,14})$/.exec(pair) ?? [];
    const shown = pair.slice(0, 100);
    if (!LABEL.test(label)) {
      refuse(
        `unexpected version label '${shown}' for '${config.name}'`,
        `expected LABEL=VERSION as in ${EXAMPLE}; a label begins with a letter and has letters, ` +
          `digits, '_', '.' and '-'`,
      );
    } else if (label === LATEST) {
      refuse(
        `version label '${LATEST}' of '${config.name}' cannot be given`,
        "it is always the highest version that serves",
      );
    } else if (labels.has(label)) {
      refuse(`version label '${label}' is given twice for '${config.name}'`, "leave one out");
    } else if (!versions.includes(Number(digits))) {
      refuse(
        `version label '${label}' of '${config.name}' names version ${digits}, which is not served`,
        `versions served under the version policy: ${versions.join(", ") || "none"}`,
      );
    } else labels.set(label, Number(digits));
  }
  return { labels, issues };
}

/** True for a text that may be a label and never a number. */
export function isLabelText(text: string): boolean {
  return LABEL.test(text);
}

/** The version that a label means; "latest" for the highest that serves; undefined = nothing. */
export function findLabel(labels: VersionLabels, label: string): number | "latest" | undefined {
  return label === LATEST ? LATEST : labels.get(label);
}
