import type { ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import type { ConfigIssue } from "../../../proto/model_config.ts";
import { typoOf } from "../../../proto/model_config_hint.ts";
import { readDirectory } from "../model_repository_files.ts";

const LABEL_PATH = /^output\[(\d+)\]\.label_filename$/;
const STATE_PATH = /^sequence_batching\.state\[(\d+)\]\.initial_state\[0\]\.data_file$/;
const NO_VERSION = /version directories present: none/;
const MODEL_FILE = /^model\.|\.(?:onnx|pt|plan)$/;
const MISSING_FILE = /No such file or directory/;

/** Adds to faults about missing files which file was probably meant. */
export async function adviseOnFiles(
  issues: readonly ConfigIssue[],
  { config, directory }: { readonly config: ModelConfig; readonly directory: string },
): Promise<ConfigIssue[]> {
  const advised: ConfigIssue[] = [];
  for (const issue of issues) {
    if (NO_VERSION.test(issue.hint ?? "")) {
      advised.push({ ...issue, hint: `${issue.hint}${await versionHint(directory)}` });
      continue;
    }
    const wanted = wantedFile(issue, config);
    const meant = wanted && await meantFile(directory, wanted);
    if (meant === undefined || issue.mend !== undefined) advised.push(issue);
    else {
      const fields = [{ path: issue.path, value: JSON.stringify(meant) }];
      advised.push({ ...issue, hint: `did you mean '${meant}'?`, mend: { fields } });
    }
  }
  return advised;
}

/** What to do about a model without any version. */
async function versionHint(directory: string): Promise<string> {
  const file = (await namesIn(directory, false)).find((name) => MODEL_FILE.test(name));
  return file === undefined
    ? "; the model's files belong into a folder '1'"
    : `; move '${file}' to '1/${file}'`;
}

interface WantedFile {
  readonly name: string;
  /** Where it is looked for, below the model's folder. */
  readonly folder: string;
}

function wantedFile({ path, message }: ConfigIssue, config: ModelConfig): WantedFile | undefined {
  if (!MISSING_FILE.test(message)) return undefined;
  const label = LABEL_PATH.exec(path)?.[1];
  if (label !== undefined) {
    const name = config.output[Number(label)]?.labelFilename;
    return name === undefined ? undefined : { name, folder: "" };
  }
  const state = STATE_PATH.exec(path)?.[1];
  if (state === undefined || config.schedulingChoice.case !== "sequenceBatching") return undefined;
  const data = config.schedulingChoice.value.state[Number(state)]?.initialState[0]?.stateData;
  return data?.case === "dataFile" ? { name: data.value, folder: "initial_state/" } : undefined;
}

/** A file with nearly the same name beside it, or the same file in the only version's folder. */
async function meantFile(
  directory: string,
  { name, folder }: WantedFile,
): Promise<string | undefined> {
  const files = (await namesIn(`${directory}/${folder}`, false)).filter((file) =>
    !file.endsWith(".pbtxt")
  );
  const near = typoOf(name, files);
  if (near !== undefined) return near;
  const versions = (await namesIn(directory, true)).filter((entry) => /^[0-9]+$/.test(entry));
  const [version] = versions;
  if (folder !== "" || version === undefined || versions.length > 1) return undefined;
  const inside = await namesIn(`${directory}/${version}`, false);
  return inside.includes(name) ? `${version}/${name}` : undefined;
}

async function namesIn(path: string, directories: boolean): Promise<string[]> {
  const entries = await readDirectory(path).catch(() => []);
  return entries.filter((entry) => entry.isDirectory === directories).map(({ name }) => name);
}
