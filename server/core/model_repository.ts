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
  withoutConsequences,
} from "../../proto/model_config.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { checkModelName, printableName } from "../../proto/model_name.ts";
import { ServerError } from "../../proto/status.ts";
import { type AgentParts, runRepositoryAgents } from "./config_agents.ts";
import type { Log } from "./log.ts";
import { ModelHold } from "./model_hold.ts";
import { isDirectoryPath, isInside, readDirectory, reasonText } from "./model_repository_files.ts";
import {
  type ConfigFile,
  type ModelPlace,
  type ReadConfig,
  readModelConfig,
} from "./model_repository_config.ts";
import { listRepository } from "./model_repository_list.ts";
import { directoryStamp, type ModelFiles } from "./model_repository_stamp.ts";
import { findVersions, selectVersions, type VersionFolders } from "./model_repository_versions.ts";
import type { ServerOptions } from "./options.ts";
import { type ModelOverride, type OverrideFiles, writeOverrideFiles } from "./override_files.ts";
import { type TemporaryFolder, TemporaryFolders } from "./temporary_folders.ts";
import { readVersionLabels, type VersionLabels } from "./version_labels.ts";

/** Reason of a model that two repositories have; neither is loaded (management.md §3). */
export const DUPLICATE_MODEL_REASON = "model appears in two or more repositories";

/** A model as it was found on disk, ready to be loaded version by version. */
export interface RepositoryModel {
  readonly name: string;
  /** Absolute path of `<repository>/<model>`, or of a temporary folder that `hold` keeps. */
  readonly directory: string;
  /** Folder that links must not lead out of. */
  readonly repository: string;
  /** Selected by the version policy, ascending, never empty. */
  readonly versions: readonly number[];
  /** Autofilled, normalised and checked; to be completed per version by `completeModelConfig`. */
  readonly config: ModelConfig;
  /** Where its fields stand in the file, for errors found later. */
  readonly positions: ConfigPositions;
  /** Differs whenever the directory changes; undefined = a load always loads anew. */
  readonly stamp?: string | undefined;
  /** Its files one by one; undefined = versions cannot be told apart, and are all loaded anew. */
  readonly files?: ModelFiles | undefined;
  /** Names of versions; undefined = the model has none. */
  readonly versionLabels?: VersionLabels | undefined;
  /** Of files that came with the request, or agents: whoever reads the model calls `settle` when it is done with it. */
  readonly hold?: ModelHold | undefined;
  /** Its files came with a load request. */
  readonly isUploaded?: boolean;
}

/** A model with everything that is wrong in it. */
export interface ExaminedModel extends RepositoryModel {
  /** In the order they are told; empty for a model that can be loaded. `versions` may be empty with some. */
  readonly issues: readonly ConfigIssue[];
  /** True when some of them are about text that could not be read. */
  readonly isUnreadable: boolean;
  /** The configuration file relative to the model's folder, and its text; undefined when there is none. */
  readonly file: ConfigFile | undefined;
  /** Where it is in the repository, also when an agent made another folder of it. */
  readonly own: ModelPlace;
}

/** What is read in place of what is on disk. */
export interface ReadOptions {
  /** Instead of the configuration file, or of all files. */
  readonly override?: ModelOverride | undefined;
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
   * Reads a model; with `override` instead of its configuration file, or of all its files. Its agents run.
   * @throws ServerError for everything that leaves the model without any version (config.md §3, steps 1 to 6).
   */
  read(name: string, override?: ModelOverride): Promise<RepositoryModel>;
}

/** Repositories that also tell everything that is wrong. */
export interface ExaminableRepository extends ModelRepository {
  /**
   * Reads a model and collects its faults instead of throwing the first ones; its `hold` must be settled all the same.
   * @throws ServerError when there is no folder to read, or it cannot be read.
   */
  examine(name: string, options?: ReadOptions): Promise<ExaminedModel>;
}

/** Gives access to the repositories of `options`; reads nothing yet. */
export function openModelRepository(
  options: ServerOptions,
  log: Log,
  agentParts: AgentParts = { temporaryFolders: new TemporaryFolders() },
): ExaminableRepository {
  if (options.modelConfigName !== "") checkConfigName(options.modelConfigName);
  return new DiskRepository(options, log, agentParts);
}

class DiskRepository implements ExaminableRepository {
  readonly #options: ServerOptions;
  readonly #log: Log;
  readonly #agentParts: AgentParts;
  /** Warnings given so far: the same folders are read again and again. */
  readonly #warned = new Set<string>();

  constructor(options: ServerOptions, log: Log, agentParts: AgentParts) {
    this.#options = options;
    this.#log = log;
    this.#agentParts = agentParts;
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

  async read(name: string, override?: ModelOverride): Promise<RepositoryModel> {
    const examined = await this.examine(name, { override });
    const { issues, isUnreadable: _, file: _file, own: _own, ...model } = examined;
    if (issues.length === 0) return model;
    await model.hold?.settle();
    throw configError(issues, model.positions);
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
    await using kept = new AsyncDisposableStack();
    const folders: TemporaryFolder[] = [];
    const keep = (folder: TemporaryFolder) => {
      folders.push(folder);
      kept.defer(() => folder.remove());
    };
    const own = override?.files === undefined
      ? await this.#findFolder(name)
      : await this.#placeFiles(override.files, keep);
    // Taken before anything is read: what changes from now on is noticed by the next load.
    const stamp = override === undefined && this.#options.modelControlMode === "explicit"
      ? await directoryStamp(own.directory)
      : undefined;
    const written = await readModelConfig(name, own, {
      override,
      configText,
      options: this.#options,
    });
    const isUnreadable = written.parsed.issues.length > 0;
    const { runs, ...place } = isUnreadable
      ? { ...own, runs: [], folders: [], issues: [], isUnfinished: false }
      : await runRepositoryAgents(written.parsed.config, { model: name, ...own }, this.#agentParts);
    place.folders.forEach(keep);
    const config = place.directory === own.directory || override !== undefined
      ? written
      : await readModelConfig(name, place, { before: written, options: this.#options });
    const checked = await this.#check(name, place, { ...config, stamp });
    // Of a model that an agent was to rewrite, and did not, nothing else can be said.
    const issues = [...place.issues, ...place.isUnfinished ? [] : checked.issues];
    const isUploaded = override?.files !== undefined;
    const examined = { ...checked, issues, own, isUploaded };
    if (folders.length === 0 && runs.length === 0) return examined;
    kept.move();
    return { ...examined, hold: new ModelHold({ model: name, runs, folders, log: this.#log }) };
  }

  /** Puts files that came with a request into a folder of their own. */
  async #placeFiles(
    files: OverrideFiles,
    keep: (folder: TemporaryFolder) => void,
  ): Promise<ModelPlace> {
    const folder = await this.#agentParts.temporaryFolders.create();
    keep(folder);
    await writeOverrideFiles(files, folder.path);
    return { directory: folder.path, root: folder.path };
  }

  /** Completes and checks what was read: config.md §3, steps 3 to 6. */
  async #check(
    name: string,
    { directory, root: repository }: ModelPlace,
    { parsed, file, stamp }: ReadConfig & { readonly stamp: string | undefined },
  ): Promise<Omit<ExaminedModel, "own">> {
    const { config, positions } = parsed;
    const entries = await readDirectory(directory);
    const folders = findVersions(entries);
    this.#warnIgnored(name, folders.ignored);
    const isUnreadable = parsed.issues.length > 0;
    const issues: ConfigIssue[] = [];
    const versionEntries = await firstVersionEntries(directory, folders);
    const backendIssues = await issuesOf(() => autofillBackend(config, { name, versionEntries }));
    if (!isUnreadable) issues.push(...backendIssues);
    const isBackendUnknown = backendIssues.length > 0;
    issues.push(
      ...this.#checkConfig(parsed, name).filter(({ path }) =>
        !isBackendUnknown || path !== "platform"
      ),
    );
    const { selected, issues: versionIssues } = this.#selectVersions(config, folders.versions);
    // Without any version there is nothing to serve, whatever the policy turns out to be.
    if (!isUnreadable || folders.versions.length === 0) issues.push(...versionIssues);
    if (selected.length > 0) issues.push(...readVersionLabels(config, selected).issues);
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

  /** Completes what needs no backend, and checks all of it. */
  #checkConfig({ config, issues: parseIssues }: ParsedModelConfig, name: string): ConfigIssue[] {
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

  async #findFolder(name: string): Promise<ModelPlace> {
    const root = await this.#findRepository(name);
    const directory = `${root}/${name}`;
    await checkModelDirectory(directory, root, name);
    return { directory, root };
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
      }', failed to poll from model repository: model not found ` +
        `in any model repository`,
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
    for (const folder of news) {
      const fault = /^0\d*$/.test(folder)
        ? "contains leading zeros in its directory name"
        : "fails to convert to integral number";
      this.#log.warning(
        `ignore version directory '${printableName(folder)}' which ${fault} (model '${name}')`,
      );
    }
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

function checkConfigName(name: string): void {
  try {
    checkModelName(name);
  } catch (reason) {
    const message = ServerError.from(reason).message.replaceAll("model name", "name");
    throw new ServerError("INVALID_ARG", `--model-config-name: ${message}`);
  }
}
