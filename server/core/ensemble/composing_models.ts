import type { ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import { isEnsemble } from "../../../proto/model_config_normalize.ts";
import { modelId } from "../model_id.ts";

/**
 * What the models in the steps of an ensemble are kept under (`modelId`), each once, in the order of the steps; nothing
 * for other models.
 */
export function composingModels({ schedulingChoice }: ModelConfig): string[] {
  if (schedulingChoice.case !== "ensembleScheduling") return [];
  return [...new Set(schedulingChoice.value.step.map(stepModelId))];
}

/** What the model of a step is kept under; with namespacing the repository says in which namespace that is. */
export function stepModelId(
  step: { readonly modelName: string; readonly modelNamespace: string },
): string {
  const namespace = isNamespace(step.modelNamespace) ? step.modelNamespace : "";
  return modelId({ namespace, name: step.modelName });
}

/** True for the path of a repository: other texts of users' configurations mean nothing. */
export function isNamespace(text: string): boolean {
  return text.startsWith("/");
}

/** A model whose composing models are known by name. */
export interface DependentModel {
  readonly name: string;
  readonly config: ModelConfig;
}

/**
 * Every ensemble that contains one of the models, also through other ensembles, in an order in which each comes after
 * those it contains itself.
 */
export function dependentEnsembles<Model extends DependentModel>(
  names: Iterable<string>,
  ensembles: readonly Model[],
): Model[] {
  const affected = new Set(names);
  const found = new Set<Model>();
  for (let size = -1; size !== found.size;) {
    size = found.size;
    for (const ensemble of ensembles) {
      if (found.has(ensemble)) continue;
      if (!composingModels(ensemble.config).some((name) => affected.has(name))) continue;
      found.add(ensemble);
      affected.add(ensemble.name);
    }
  }
  return sortByDependency([...found]);
}

/** Models in an order in which each comes after those it contains; those of a circle in any order. */
export function sortByDependency<Model extends DependentModel>(models: readonly Model[]): Model[] {
  const byName = new Map(models.map((model) => [model.name, model]));
  const sorted = new Set<Model>();
  const entered = new Set<Model>();
  // Iterative: the depth of ensembles in ensembles is the user's choice.
  const stack = [...models].reverse();
  while (stack.length > 0) {
    const model = stack.at(-1)!;
    if (entered.has(model)) {
      stack.pop();
      sorted.add(model);
      continue;
    }
    entered.add(model);
    for (const name of composingModels(model.config)) {
      const part = byName.get(name);
      if (part !== undefined && !entered.has(part)) stack.push(part);
    }
  }
  return [...sorted];
}

/** The names of a circle of ensembles that starts and ends at `name`, such as `[a, b, c]` for a → b → c → a. */
export function findCircle(
  name: string,
  configOf: (name: string) => ModelConfig | undefined,
): string[] | undefined {
  const reachedFrom = new Map<string, string>();
  const waiting = [name];
  for (let at = waiting.shift(); at !== undefined; at = waiting.shift()) {
    const config = configOf(at);
    if (config === undefined || !isEnsemble(config)) continue;
    for (const part of composingModels(config)) {
      if (part === name) return pathTo(at, name, reachedFrom);
      if (reachedFrom.has(part)) continue;
      reachedFrom.set(part, at);
      waiting.push(part);
    }
  }
  return undefined;
}

function pathTo(end: string, start: string, reachedFrom: ReadonlyMap<string, string>): string[] {
  const path = [end];
  for (let at = end; at !== start;) path.unshift(at = reachedFrom.get(at)!);
  return path;
}
