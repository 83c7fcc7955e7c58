import type { ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import { configFaults, type ConfigIssue } from "../../../proto/model_config.ts";
import { isEnsemble } from "../../../proto/model_config_normalize.ts";
import { ServerError } from "../../../proto/status.ts";
import { composingModels, findCircle, sortByDependency } from "../ensemble/composing_models.ts";
import { checkComposition, type ComposingModel } from "../ensemble/composition_check.ts";
import type { EnsembleStep } from "../ensemble/ensemble_graph.ts";
import { DUPLICATE_MODEL_REASON, openModelRepository } from "../model_repository.ts";
import { isHidden } from "../model_repository_look.ts";
import type { CheckedModel, CheckParts } from "./model_check.ts";

/** A fault that concerns no configuration: of a repository, or of a folder that cannot be read as a model. */
export interface FolderFault {
  readonly repository: string;
  /** "" for the repository itself. */
  readonly model: string;
  /** Absolute path. */
  readonly directory: string;
  readonly issue: ConfigIssue;
}

/** All that is in the repositories, and what is wrong with it. */
export interface CheckedRepositories {
  readonly models: readonly CheckedModel[];
  readonly folders: readonly FolderFault[];
}

/**
 * Checks every model of every repository of the options, one after the other.
 * @param checkOne checks one model, with or without mending it.
 */
export async function checkRepositories(
  parts: CheckParts,
  checkOne: (name: string) => Promise<CheckedModel>,
): Promise<CheckedRepositories> {
  const folders: FolderFault[] = [];
  const places = await listModels(parts, folders);
  const models: CheckedModel[] = [];
  for (
    const [model, repositories] of [...places].sort(([left], [right]) => left < right ? -1 : 1)
  ) {
    const [repository] = repositories;
    if (repository === undefined) continue;
    if (repositories.length > 1) {
      folders.push(...repositories.map((each) => duplicateFault(model, each, repositories)));
      continue;
    }
    try {
      models.push(await checkOne(model));
    } catch (reason) {
      const directory = `${repository}/${model}`;
      for (const issue of configFaults(reason).issues) {
        folders.push({ repository, model, directory, issue });
      }
    }
  }
  return { models: checkEnsembles(models, folders), folders };
}

async function listModels(
  { options }: CheckParts,
  folders: FolderFault[],
): Promise<Map<string, string[]>> {
  const places = new Map<string, string[]>();
  for (const repository of options.modelRepositories) {
    const alone = openModelRepository({ ...options, modelRepositories: [repository] }, SILENT_LOG);
    try {
      for (const name of await alone.list()) {
        if (isHidden(name)) continue;
        places.set(name, [...places.get(name) ?? [], repository]);
      }
    } catch (reason) {
      const { message, code } = ServerError.from(reason);
      const issue = { path: "", message, code };
      folders.push({ repository, model: "", directory: repository, issue });
    }
  }
  return places;
}

const SILENT_LOG = { info: () => {}, warning: () => {}, error: () => {}, verbose: () => {} };

function duplicateFault(
  model: string,
  repository: string,
  repositories: readonly string[],
): FolderFault {
  const others = repositories.filter((other) => other !== repository);
  const hint = `also in ${others.map((other) => `${other}/${model}`).join(", ")}; give one of ` +
    `them another name`;
  return {
    repository,
    model,
    directory: `${repository}/${model}`,
    issue: { path: "", message: DUPLICATE_MODEL_REASON, hint },
  };
}

/** Ensembles against the models of their steps, in an order in which those come first. */
function checkEnsembles(
  models: readonly CheckedModel[],
  folders: readonly FolderFault[],
): CheckedModel[] {
  const byName = new Map(models.map((model) => [model.name, model]));
  const failed = new Map(folders.map(({ model, issue }) => [model, issue]));
  const configOf = (name: string): ModelConfig | undefined => {
    const configs = byName.get(name)?.configs;
    return configs?.get(Math.max(...configs.keys()));
  };
  const ensembles = models.flatMap(({ name }) => {
    const config = configOf(name);
    return config !== undefined && isEnsemble(config) ? [{ name, config }] : [];
  });
  for (const { name, config } of sortByDependency(ensembles)) {
    const circle = findCircle(name, configOf);
    const found = circle === undefined
      ? checkComposition(config, {
        find: (step) => findModel(step, byName, failed),
        modelNames: [...byName.keys()],
      })
      : [circleIssue(name, circle, composingModels(config))];
    if (found.length === 0) continue;
    byName.set(name, {
      ...byName.get(name)!,
      stage: "model",
      issues: [...byName.get(name)!.issues, ...found],
      configs: new Map(),
    });
  }
  return models.map(({ name }) => byName.get(name)!);
}

function circleIssue(
  name: string,
  circle: readonly string[],
  parts: readonly string[],
): ConfigIssue {
  const last = circle.at(-1) ?? name;
  const step = Math.max(0, parts.findIndex((part) => part === (circle[1] ?? name)));
  return {
    path: `ensemble_scheduling.step[${step}]`,
    message: `circular dependency between ensembles: ${name} -> ... -> ${last} -> ${name}`,
    hint: `the circle is ${[...circle, name].join(" -> ")}`,
  };
}

function findModel(
  { modelName, modelVersion }: EnsembleStep,
  models: ReadonlyMap<string, CheckedModel>,
  failed: ReadonlyMap<string, ConfigIssue>,
): ComposingModel {
  const model = models.get(modelName);
  const failure = model?.issues[0] ?? failed.get(modelName);
  if (failure !== undefined) {
    return {
      reason: `which has no loaded version. Model '${modelName}' loading failed with error: ` +
        failure.message,
    };
  }
  if (model === undefined) return { isUnknown: true };
  const versions = [...model.configs.keys()];
  const latest = Math.max(...versions);
  const wanted = Number(modelVersion);
  const config = model.configs.get(wanted) ?? (wanted <= 0 ? model.configs.get(latest) : undefined);
  if (config !== undefined) return { config };
  return { reason: `whose required version ${modelVersion} is not loaded.` };
}
