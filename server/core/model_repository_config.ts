import {
  type ParsedModelConfig,
  parseModelConfig,
  parseModelConfigJson,
} from "../../proto/model_config.ts";
import { fileError, readBoundedFile } from "./model_repository_files.ts";
import type { ServerOptions } from "./options.ts";
import type { ModelOverride } from "./override_files.ts";

/** The usual name of a configuration. */
export const CONFIG_FILE = "config.pbtxt";

const CONFIG_BYTES_MAX = 16 * 1024 * 1024;

/** A configuration file as it was read. */
export interface ConfigFile {
  /** Relative to the model's folder. */
  readonly name: string;
  /** Undefined when its bytes are no UTF-8. */
  readonly text: string | undefined;
  readonly parsed: ParsedModelConfig;
}

/** Where to look for the configuration of a model. */
interface ConfigFileSource {
  readonly directory: string;
  readonly repository: string;
  /** Read as if it stood in the file. */
  readonly configText: string | undefined;
  readonly options: ServerOptions;
}

/**
 * Reads the configuration file of a model: the one that `--model-config-name` names, else `config.pbtxt`; undefined
 * when there is none and none is needed.
 * @throws ServerError when it cannot be read, or must be there and is not.
 */
async function readConfigFile(
  model: string,
  { directory, repository, configText, options }: ConfigFileSource,
): Promise<ConfigFile | undefined> {
  const { modelConfigName, autoCompleteConfig } = options;
  const candidates = modelConfigName === "" ? [] : [`configs/${modelConfigName}.pbtxt`];
  for (const name of [...candidates, CONFIG_FILE]) {
    const file = { path: `${directory}/${name}`, name: `${model}/${name}`, root: repository };
    const bytes = await readBoundedFile(file, CONFIG_BYTES_MAX);
    if (bytes === undefined) continue;
    if (configText === undefined) return { name, ...parseConfigBytes(bytes, file.name) };
    return { name, text: configText, parsed: parseModelConfig(configText, file.name) };
  }
  const fileName = `${model}/${CONFIG_FILE}`;
  if (configText !== undefined) {
    return { name: CONFIG_FILE, text: configText, parsed: parseModelConfig(configText, fileName) };
  }
  if (autoCompleteConfig) return undefined;
  throw fileError({ name: fileName }, "No such file or directory");
}

/** Where the files of a model are. */
export interface ModelPlace {
  readonly directory: string;
  /** Folder that links must not lead out of. */
  readonly root: string;
}

/** A configuration as it was read. */
export interface ReadConfig {
  /** Undefined when it came with the request, or there is none. */
  readonly file: ConfigFile | undefined;
  readonly parsed: ParsedModelConfig;
}

/** Where a configuration comes from. */
export interface ConfigOrigin {
  readonly options: ServerOptions;
  /** What came with a load request goes before any file. */
  readonly override?: ModelOverride | undefined;
  /** Read as if it stood in the file. */
  readonly configText?: string | undefined;
  /** What counts when an agent made the folder, and put no configuration into it. */
  readonly before?: ReadConfig;
}

/** Reads the configuration of a model. @throws ServerError when its file cannot be read, or must be there and is not. */
export async function readModelConfig(
  name: string,
  { directory, root }: ModelPlace,
  { override, configText, before, options }: ConfigOrigin,
): Promise<ReadConfig> {
  if (override !== undefined) {
    return { file: undefined, parsed: parseOverride(override.config, name) };
  }
  const file = await readConfigFile(name, {
    directory,
    repository: root,
    configText,
    options: before === undefined ? options : { ...options, autoCompleteConfig: true },
  });
  if (file === undefined && before !== undefined) return before;
  return { file, parsed: file?.parsed ?? parseModelConfig("", `${name}/${CONFIG_FILE}`) };
}

function parseOverride(override: string, name: string): ParsedModelConfig {
  const { config, issues } = parseModelConfigJson(override);
  const told = issues.map((issue) => ({
    ...issue,
    message: `Invalid config override: ${issue.message}`,
  }));
  return { config, issues: told, positions: { fileName: name, byPath: new Map() } };
}

function parseConfigBytes(bytes: Uint8Array, fileName: string): Omit<ConfigFile, "name"> {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return { text, parsed: parseModelConfig(text, fileName) };
  } catch {
    const before = new TextDecoder().decode(bytes).split("\ufffd", 1)[0] ?? "";
    const lines = before.split("\n");
    const position = { line: lines.length, column: (lines.at(-1)?.length ?? 0) + 1 };
    const issue = { path: "", message: "text in UTF-8 expected, got other bytes", position };
    return {
      text: undefined,
      parsed: { ...parseModelConfig("", fileName), issues: [issue] },
    };
  }
}
