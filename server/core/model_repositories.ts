import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { printableName } from "../../proto/model_name.ts";
import type { AgentParts } from "./config_agents.ts";
import type { Log } from "./log.ts";
import { isAmbiguousName, modelId, splitModelId } from "./model_id.ts";
import {
  type ModelRepository,
  openModelRepository,
  type RepositoryModel,
} from "./model_repository.ts";
import { isDirectoryPath } from "./model_repository_files.ts";
import { filesStamp, type ModelFiles, readModelFiles } from "./model_repository_stamp.ts";
import {
  isHidden,
  isUnfinished,
  lookAtFolders,
  type RepositoryLook,
} from "./model_repository_look.ts";
import type { ServerOptions } from "./options.ts";
import type { ModelOverride } from "./override_files.ts";
import { readVersionLabels } from "./version_labels.ts";

/** The repositories of a server that may also be looked at again and again. */
export interface WatchedRepository extends ModelRepository {
  /** What the repositories hold now; never rejects. */
  look(): Promise<RepositoryLook>;
}

/**
 * Gives access to the repositories of a server: models by name or, with `--model-namespacing`, by repository and name
 * (`modelId`), with what is needed to tell what changed in them. Hidden folders are none of the models.
 */
export function openModelRepositories(
  options: ServerOptions,
  log: Log,
  agentParts?: AgentParts,
): WatchedRepository {
  return new ModelRepositories(options, log, agentParts);
}

class ModelRepositories implements WatchedRepository {
  readonly #options: ServerOptions;
  readonly #log: Log;
  readonly #all: ModelRepository;
  /** With namespacing: each repository alone. */
  readonly #alone: ReadonlyMap<string, ModelRepository>;
  readonly #told = new Set<string>();

  constructor(options: ServerOptions, log: Log, agentParts: AgentParts | undefined) {
    this.#options = options;
    this.#log = log;
    this.#all = openModelRepository(options, log, agentParts);
    const alone = options.modelNamespacing ? options.modelRepositories : [];
    this.#alone = new Map(alone.map((path) => {
      const own = { ...options, modelRepositories: [path] };
      return [path, openModelRepository(own, log, agentParts)];
    }));
  }

  async list(): Promise<string[]> {
    if (!this.#options.modelNamespacing) return this.#visible(await this.#all.list());
    const ids: string[] = [];
    for (const [namespace, repository] of this.#alone) {
      for (const name of this.#visible(await repository.list())) {
        ids.push(modelId({ namespace, name }));
      }
    }
    if (this.#alone.size === 0) await this.#all.list();
    return ids.sort();
  }

  async look(): Promise<RepositoryLook> {
    const { modelRepositories, modelNamespacing } = this.#options;
    return await lookAtFolders(
      modelRepositories,
      (namespace, name) => modelNamespacing ? modelId({ namespace, name }) : name,
    );
  }

  async read(id: string, override?: ModelOverride): Promise<RepositoryModel> {
    const { namespace, name } = splitModelId(id);
    const repository = this.#alone.get(namespace) ?? this.#all;
    // Taken before anything is read: what changes from now on is noticed by the next look.
    const files = override?.files === undefined ? await this.#files(namespace, name) : undefined;
    const model = await repository.read(name, override);
    const { labels } = readVersionLabels(model.config, model.versions);
    const steps = await this.#resolveSteps(model.config, namespace);
    const isPolled = this.#options.modelControlMode === "poll" && override === undefined;
    const stamp = isPolled ? files && filesStamp(files) : model.stamp;
    return {
      ...model,
      name: id,
      files,
      versionLabels: labels,
      stamp: stamp === undefined ? undefined : [stamp, ...steps].join("\n"),
    };
  }

  async #files(namespace: string, name: string): Promise<ModelFiles | undefined> {
    const isRelated = this.#options.modelControlMode === "poll";
    const { modelRepositories } = this.#options;
    for (const repository of namespace === "" ? modelRepositories : [namespace]) {
      const directory = `${repository}/${name}`;
      if (!await isDirectoryPath(directory)) continue;
      return await readModelFiles(directory, { isRelated }).catch(() => undefined);
    }
    return undefined;
  }

  /** With namespacing, says for each step of an ensemble in which repository its model is: its own, or the only one. */
  async #resolveSteps({ schedulingChoice }: ModelConfig, own: string): Promise<string[]> {
    if (schedulingChoice.case !== "ensembleScheduling") return [];
    const { step: steps } = schedulingChoice.value;
    for (const step of steps) {
      step.modelNamespace = own === "" ? "" : await this.#findNamespace(step.modelName, own);
    }
    return own === "" ? [] : steps.map(({ modelNamespace }) => modelNamespace);
  }

  async #findNamespace(name: string, own: string): Promise<string> {
    const found: string[] = [];
    for (const repository of this.#alone.keys()) {
      if (await isDirectoryPath(`${repository}/${name}`)) found.push(repository);
    }
    return found.length === 1 && !found.includes(own) ? found[0]! : own;
  }

  #visible(names: readonly string[]): string[] {
    return names.filter((name) => {
      if (isHidden(name)) {
        this.#tell(
          name,
          `ignoring hidden directory '${printableName(name)}' of a model repository`,
        );
        return false;
      }
      if (this.#options.modelControlMode === "poll" && isUnfinished(name)) return false;
      if (this.#options.modelNamespacing && isAmbiguousName(name)) {
        this.#tell(
          name,
          `ignoring directory '${
            printableName(name)
          }': with --model-namespacing no name may have '::'`,
        );
        return false;
      }
      return true;
    });
  }

  #tell(name: string, message: string): void {
    if (this.#told.has(name) || this.#told.size > 1000) return;
    this.#told.add(name);
    this.#log.info(message);
  }
}
