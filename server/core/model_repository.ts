import {
  autofillBackend,
  checkModelConfig,
  checkModelIo,
  configError,
  configFaults,
  type ConfigIssue,
  type ConfigPositions,
  normalizeModelConfig,
  type ParsedModelConfig,
  parseModelConfig,
  parseModelConfigJson,
  withoutConsequences,
} from "../../proto/model_config.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { checkModelName, printableName } from "../../proto/model_name.ts";
import { ServerError } from "../../proto/status.ts";
import { runRepositoryAgents } from "./config_agents.ts";
import type { Log } from "./log.ts";
import { isDirectoryPath, isInside, readDirectory, reasonText } from "./model_repository_files.ts";
import { CONFIG_FILE, type ConfigFile, readConfigFile } from "./model_repository_config.ts";
import { directoryStamp } from "./model_repository_stamp.ts";
import { findVersions, selectVersions, type VersionFolders } from "./model_repository_versions.ts";
import type { ServerOptions } from "./options.ts";

/** Reason of a model that two repositories have; neither is loaded (management.md §3). */
export const DUPLICATE_MODEL_REASON = "model appears in two or more repositories";

/** A model as it was found on disk, ready to be loaded version by version. */
export interface RepositoryModel {
  readonly name: string;
  /** Absolute path of `<repository>/<model>`. */
  readonly directory: string;
  readonly repository: string;
  /** Selected by the version policy, ascending, never empty. */
  readonly versions: readonly number[];
  /** Autofilled, normalised and checked; to be completed per version by `completeModelConfig`. */
  readonly config: ModelConfig;
  /** Where its fields stand in the file, for errors found later. */
  readonly positions: ConfigPositions;
  /** Differs whenever the directory changes; undefined = a load always loads anew. */
  readonly stamp?: string | undefined;
}

/** A model with everything that is wrong in it. */
export interface ExaminedModel extends RepositoryModel {
  /** In the order they are told; empty for a model that can be loaded. `versions` may be empty with some. */
  readonly issues: readonly ConfigIssue[];
  /** True when some of them are about text that could not be read. */
  readonly isUnreadable: boolean;
  /** The configuration file relative to the model's folder, and its text; undefined when there is none. */
  readonly file: ConfigFile | undefined;
}

/** What is read in place of what is on disk. */
export interface ReadOptions {
  /** JSON instead of the configuration file. */
  readonly override?: string | undefined;
  /** Text instead of that of the configuration file. */
  readonly configText?: string | undefined;
}

/** The model repositories of the server. */
export interface ModelRepository {
  /**
   * Names of all directories of all repositories, sorted, each once.
   * @throws ServerError INVALID_ARG when a repository is no readable directory.
   */
  list(): Promise<string[]>;
  /**
   * Reads a model; with `override` (JSON) instead of its configuration file.
   * @throws ServerError for everything that leaves the model without any version (config.md §3, steps 1 to 6).
   */
  read(name: string, override?: string): Promise<RepositoryModel>;
}

/** Repositories that also tell everything that is wrong. */
export interface ExaminableRepository extends ModelRepository {
  /**
   * Reads a model and collects its faults instead of throwing the first ones.
   * @throws ServerError when there is no folder to read, or it cannot be read.
   */
  examine(name: string, options?: ReadOptions): Promise<ExaminedModel>;
}

/** Gives access to the repositories of `options`; reads nothing yet. */
export function openModelRepository(options: ServerOptions, log: Log): ExaminableRepository {
  if (options.modelConfigName !== "") checkConfigName(options.modelConfigName);
  return new DiskRepository(options, log);
}

class DiskRepository implements ExaminableRepository {
  readonly #options: ServerOptions;
  readonly #log: Log;
  /** Warnings given so far: the same folders are read again and again. */
  readonly #warned = new Set<string>();

  constructor(options: ServerOptions, log: Log) {
    this.#options = options;
    this.#log = log;
  }

  async list(): Promise<string[]> {
    if (this.#options.modelRepositories.length === 0) {
      throw new ServerError("INVALID_ARG", "--model-repository must be specified");
    }
    const names = new Set<string>();
    for (const repository of this.#options.modelRepositories) {
      for (const name of await listRepository(repository)) names.add(name);
    }
    return [...names].sort();
  }

  async read(name: string, override?: string): Promise<RepositoryModel> {
    const { issues, isUnreadable: _, file: _file, ...model } = await this.examine(name, {
      override,
    });
    if (issues.length > 0) throw configError(issues, model.positions);
    return model;
  }

  async examine(name: string, options: ReadOptions = {}): Promise<ExaminedModel> {
    checkModelName(name);
    try {
      return await this.#examine(name, options);
    } catch (reason) {
      if (reason instanceof ServerError) throw reason;
      throw new ServerError(
        "INTERNAL",
        `failed to read the directory of model '${name}': ${reasonText(reason)}`,
        { cause: reason },
      );
    }
  }

  async #examine(name: string, { override, configText }: ReadOptions): Promise<ExaminedModel> {
    const repository = await this.#findRepository(name);
    const directory = `${repository}/${name}`;
    await checkModelDirectory(directory, repository, name);
    // Taken before anything is read: what changes from now on is noticed by the next load.
    const stamp = override === undefined && this.#options.modelControlMode === "explicit"
      ? await directoryStamp(directory)
      : undefined;
    const entries = await readDirectory(directory);
    const folders = findVersions(entries);
    this.#warnIgnored(name, folders.ignored);

    const file = override === undefined
      ? await readConfigFile(name, { directory, repository, configText, options: this.#options })
      : undefined;
    const parsed = override === undefined
      ? file?.parsed ?? parseModelConfig("", `${name}/${CONFIG_FILE}`)
      : parseOverride(override, name);
    const { config, positions } = parsed;
    const isUnreadable = parsed.issues.length > 0;
    const issues: ConfigIssue[] = [];
    if (!isUnreadable) {
      issues.push(
        ...await issuesOf(() => runRepositoryAgents(config, { directory, repository, positions })),
      );
    }
    const versionEntries = await firstVersionEntries(directory, folders);
    const backendIssues = await issuesOf(() => autofillBackend(config, { name, versionEntries }));
    if (!isUnreadable) issues.push(...backendIssues);
    const isBackendUnknown = backendIssues.length > 0;
    issues.push(
      ...this.#check(parsed, name).filter(({ path }) => !isBackendUnknown || path !== "platform"),
    );
    const { selected, issues: versionIssues } = this.#selectVersions(config, folders.versions);
    // Without any version there is nothing to serve, whatever the policy turns out to be.
    if (!isUnreadable || folders.versions.length === 0) issues.push(...versionIssues);
    return {
      name,
      directory,
      repository,
      versions: selected,
      config,
      positions,
      stamp,
      issues,
      isUnreadable,
      file,
    };
  }

  /** Completes what needs no backend, and checks all of it: config.md §3, steps 3 to 6. */
  #check({ config, issues: parseIssues }: ParsedModelConfig, name: string): ConfigIssue[] {
    const given = config.name;
    if (given === "") config.name = name;
    normalizeModelConfig(config);
    const issues = checkModelConfig(config);
    if (given !== "" && given !== name) {
      const message = `unexpected directory name '${name}' for model '${given}', directory name ` +
        `must equal model name`;
      issues.push({ path: "name", message });
    }
    // Without completion nothing can be filled in later: what is missing now stays missing.
    if (!this.#options.autoCompleteConfig) issues.push(...checkModelIo(config));
    else if (issues.length > 0 || parseIssues.length > 0) {
      issues.push(...checkModelIo(config).filter((issue) => !issue.isCompletable));
    }
    return [...parseIssues, ...withoutConsequences(issues, parseIssues)];
  }

  async #findRepository(name: string): Promise<string> {
    const found: string[] = [];
    for (const repository of this.#options.modelRepositories) {
      if (await isDirectoryPath(`${repository}/${name}`)) found.push(repository);
    }
    const [first] = found;
    if (found.length > 1) throw new ServerError("INVALID_ARG", DUPLICATE_MODEL_REASON);
    if (first !== undefined) return first;
    throw new ServerError(
      "NOT_FOUND",
      `failed to load '${
        printableName(name)
      }', failed to poll from model repository: there is no ` +
        `directory of this name`,
    );
  }

  #selectVersions(
    config: ModelConfig,
    versions: readonly number[],
  ): { readonly selected: number[]; readonly issues: ConfigIssue[] } {
    const { selected, missing } = selectVersions(versions, config);
    for (const version of missing) {
      this.#log.warning(
        `version ${version} is specified for model '${config.name}', but the version directory is ` +
          `not present`,
      );
    }
    if (selected.length > 0) return { selected, issues: [] };
    const message = `at least one version must be available under the version policy of model ` +
      `'${config.name}'`;
    const present = versions.length === 0 ? "none" : versions.join(", ");
    const issue = {
      path: "version_policy",
      message,
      hint: `version directories present: ${present}` +
        (missing.length === 0 ? "" : `, missing: ${missing.join(", ")}`),
      ...(versions.length === 0 ? { place: config.name } : {}),
    };
    return { selected, issues: [issue] };
  }

  #warnIgnored(name: string, ignored: readonly string[]): void {
    const news = ignored.filter((folder) => !this.#warned.has(`${name}/${folder}`));
    if (news.length === 0) return;
    for (const folder of news) this.#warned.add(`${name}/${folder}`);
    const folders = news.map((folder) => `'${printableName(folder)}'`).join(", ");
    this.#log.warning(
      `ignoring folders of model '${name}' whose names are no version numbers: ${folders}`,
    );
  }
}

/** The faults that an operation throws. */
async function issuesOf(operation: () => void | Promise<void>): Promise<readonly ConfigIssue[]> {
  try {
    await operation();
    return [];
  } catch (reason) {
    return configFaults(reason).issues;
  }
}

async function listRepository(repository: string): Promise<string[]> {
  const problem = await repositoryProblem(repository);
  if (problem !== undefined) {
    throw new ServerError(
      "INVALID_ARG",
      `repository path is not a valid directory: '${repository}' ${problem}`,
    );
  }
  try {
    const entries = await readDirectory(repository);
    return entries.filter((entry) => entry.isDirectory).map((entry) => entry.name);
  } catch (reason) {
    throw new ServerError(
      "INVALID_ARG",
      `repository path is not a valid directory: '${repository}' cannot be listed: ` +
        reasonText(reason),
    );
  }
}

async function repositoryProblem(repository: string): Promise<string | undefined> {
  if (/^(?:gs|s3|as):\/\//.test(repository)) {
    return "is in a cloud storage, which this server does not support";
  }
  try {
    return (await Deno.stat(repository)).isDirectory ? undefined : "is not a directory";
  } catch (reason) {
    return reason instanceof Deno.errors.NotFound
      ? "does not exist"
      : `cannot be opened: ${reasonText(reason)}`;
  }
}

/** The folder must be where its name says, not a link to somewhere else. */
async function checkModelDirectory(
  directory: string,
  repository: string,
  name: string,
): Promise<void> {
  const realPath = await Deno.realPath(directory);
  if (isInside(realPath, await Deno.realPath(repository))) return;
  throw new ServerError(
    "INVALID_ARG",
    `directory of model '${name}' is a link that leads out of the model repository`,
  );
}

/** Names in the folder that tells the backend: the first version, else the first other folder (config.md §4). */
async function firstVersionEntries(directory: string, folders: VersionFolders): Promise<string[]> {
  const folder = folders.versions.map(String).sort()[0] ?? folders.ignored[0];
  if (folder === undefined) return [];
  const entries = await readDirectory(`${directory}/${folder}`).catch(() => []);
  return entries.map((entry) => entry.name);
}

function parseOverride(override: string, name: string): ParsedModelConfig {
  const { config, issues } = parseModelConfigJson(override);
  const told = issues.map((issue) => ({
    ...issue,
    message: `Invalid config override: ${issue.message}`,
  }));
  return { config, issues: told, positions: { fileName: name, byPath: new Map() } };
}

function checkConfigName(name: string): void {
  try {
    checkModelName(name);
  } catch (reason) {
    const message = ServerError.from(reason).message.replaceAll("model name", "name");
    throw new ServerError("INVALID_ARG", `--model-config-name: ${message}`);
  }
}
