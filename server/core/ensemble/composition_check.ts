import { DataType, type ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import { editDistance } from "../../../proto/edit_distance.ts";
import type { ConfigIssue } from "../../../proto/model_config.ts";
import { formatShape } from "../../../proto/tensor.ts";
import { createEnsembleGraph, type EnsembleGraph, type EnsembleStep } from "./ensemble_graph.ts";
import { matchesDims } from "./ensemble_shape.ts";

/** What is known of a model that a step names: its complete configuration, or why there is none. */
export type ComposingModel =
  | { readonly config: ModelConfig }
  /** Nobody knows a model of this name. */
  | { readonly isUnknown: true }
  /** The model is there, but no version of it, or not the one that was asked for. */
  | { readonly reason: string };

/** What an ensemble is checked against. */
export interface Composition {
  /** The model of a step. */
  readonly find: (step: EnsembleStep) => ComposingModel;
  /** All models there are, to find the one that was meant. */
  readonly modelNames: readonly string[];
}

/** One place that says what an ensemble tensor looks like. */
interface TensorView {
  readonly model: string;
  readonly path: string;
  readonly dataType: DataType;
  /** As it passes between the models, without the batch dimension. */
  readonly dims: readonly number[];
  readonly isBatched: boolean;
  /** Why that is not what the reader of the configuration may expect. */
  readonly note: string | undefined;
}

interface StepModel {
  readonly step: EnsembleStep;
  readonly config: ModelConfig;
}

interface CheckContext {
  readonly ensemble: ModelConfig;
  readonly graph: EnsembleGraph;
  readonly models: readonly StepModel[];
  readonly issues: ConfigIssue[];
}

/** The checks of config.md §7.2: everything that is wrong between an ensemble and its composing models. */
export function checkComposition(ensemble: ModelConfig, composition: Composition): ConfigIssue[] {
  const graph = createEnsembleGraph(ensemble);
  const issues: ConfigIssue[] = [];
  const models = findModels(ensemble, graph, composition, issues);
  const context = { ensemble, graph, models, issues };
  for (const model of models) checkBatchSize(model, context);
  for (const model of models) checkMappings(model, context);
  checkTensors(context);
  if (models.length === graph.steps.length) checkOrigins(context);
  if (ensemble.responseCache?.enable && isDecoupledComposition(models.map((m) => m.config))) {
    issues.push({
      path: "response_cache",
      message:
        `Response Cache does not currently support model ${ensemble.name} with 'decoupled' ` +
        `transaction policy. Please disable the response cache.`,
      hint: "a step of the ensemble is decoupled",
    });
  }
  return issues;
}

/** True when some step's model is decoupled: then so is the ensemble. */
export function isDecoupledComposition(configs: readonly ModelConfig[]): boolean {
  return configs.some((config) => config.modelTransactionPolicy?.decoupled === true);
}

function stepPath({ index }: EnsembleStep): string {
  return `ensemble_scheduling.step[${index}]`;
}

function findModels(
  { name }: ModelConfig,
  { steps }: EnsembleGraph,
  composition: Composition,
  issues: ConfigIssue[],
): StepModel[] {
  const found: StepModel[] = [];
  const unknown: EnsembleStep[] = [];
  for (const step of steps) {
    const model = composition.find(step);
    if ("config" in model) found.push({ step, config: model.config });
    else if ("isUnknown" in model) unknown.push(step);
    else {
      issues.push({
        path: stepPath(step),
        message: `ensemble '${name}' depends on '${step.modelName}' ${model.reason}`,
      });
    }
  }
  if (unknown.length === 0) return found;
  const names = [...new Set(unknown.map(({ modelName }) => modelName))];
  const where = unknown.map(({ index, modelName }) => {
    const others = composition.modelNames.filter((other) => other !== name);
    return `step ${index} names '${modelName}'${nearest(modelName, others)}`;
  });
  issues.unshift({
    path: stepPath(unknown[0]!),
    message: `ensemble ${name} contains models that are not available or ambiguous: ` +
      names.join(", "),
    hint: where.join("; "),
  });
  return found;
}

function checkBatchSize({ step, config }: StepModel, { ensemble, issues }: CheckContext): void {
  if (config.maxBatchSize === 0 || config.maxBatchSize >= ensemble.maxBatchSize) return;
  issues.push({
    path: stepPath(step),
    message: `ensemble ${ensemble.name} allows maximum batch size ${ensemble.maxBatchSize}, but ` +
      `it contains model ${config.name} which only allows maximum batch size to be ` +
      `${config.maxBatchSize}`,
    hint: `write max_batch_size: ${ensemble.maxBatchSize} into the config.pbtxt of ` +
      `${config.name} (where it is not written, the backend chooses it), or ` +
      `max_batch_size: ${config.maxBatchSize} into that of ${ensemble.name}`,
  });
}

/** Names that do not exist in the composing model, and inputs of it that nothing is given to. */
function checkMappings({ step, config }: StepModel, { ensemble, issues }: CheckContext): void {
  const start = `in ensemble ${ensemble.name}, `;
  const inputs = config.input.map(({ name }) => name);
  const outputs = config.output.map(({ name }) => name);
  for (const { inner, outer } of step.inputs) {
    if (inputs.includes(inner)) continue;
    issues.push({
      path: `${stepPath(step)}.input_map`,
      message: `${start}ensemble tensor ${outer} is mapping to non-existing input ${inner} in ` +
        `model ${config.name}`,
      hint: choice("inputs", inner, inputs),
    });
  }
  for (const { inner, outer } of step.outputs) {
    if (outputs.includes(inner)) continue;
    issues.push({
      path: `${stepPath(step)}.output_map`,
      message: `${start}ensemble tensor ${outer} is mapped from non-existing output ${inner} in ` +
        `model ${config.name}`,
      hint: choice("outputs", inner, outputs),
    });
  }
  for (const { name, optional } of config.input) {
    if (optional || step.inputs.some(({ inner }) => inner === name)) continue;
    issues.push({
      path: `${stepPath(step)}.input_map`,
      message:
        `${start}input ${name} in model ${config.name} is not mapped to any ensemble tensors`,
      hint: `step ${step.index} must map it, or the model must declare it optional`,
    });
  }
}

/** Every view of a tensor must agree with that of who writes it. */
function checkTensors({ ensemble, models, issues }: CheckContext): void {
  for (const [tensor, [first, ...others]] of tensorViews(ensemble, models)) {
    for (const view of others) {
      const difference = differenceOf(first!, view);
      if (difference === undefined) continue;
      const notes = [first!, view].flatMap(({ note }) => note ?? []);
      issues.push({
        path: view.path,
        message: `in ensemble ${ensemble.name}, ensemble tensor ${tensor}: ${difference}`,
        ...(notes.length === 0 ? {} : { hint: notes.join("; ") }),
      });
    }
  }
}

/** What says something about each tensor, first of all who writes it. */
function tensorViews(
  ensemble: ModelConfig,
  models: readonly StepModel[],
): Map<string, TensorView[]> {
  const views = new Map<string, TensorView[]>();
  const add = (tensor: string, view: TensorView | undefined) => {
    if (view === undefined) return;
    const known = views.get(tensor);
    if (known === undefined) views.set(tensor, [view]);
    else known.push(view);
  };
  for (const [index, { name }] of ensemble.input.entries()) {
    add(name, ensembleView(ensemble, "input", name, `input[${index}]`));
  }
  for (const { step, config } of models) {
    for (const { inner, outer } of step.outputs) {
      add(outer, tensorView(config, "output", inner, `${stepPath(step)}.output_map`));
    }
  }
  for (const { step, config } of models) {
    for (const { inner, outer } of step.inputs) {
      add(outer, tensorView(config, "input", inner, `${stepPath(step)}.input_map`));
    }
  }
  for (const [index, { name }] of ensemble.output.entries()) {
    add(name, ensembleView(ensemble, "output", name, `output[${index}]`));
  }
  return views;
}

function tensorView(
  config: ModelConfig,
  side: "input" | "output",
  name: string,
  path: string,
): TensorView | undefined {
  const tensor = config[side].find((candidate) => candidate.name === name);
  if (tensor === undefined) return undefined;
  return {
    model: config.name,
    path,
    dataType: tensor.dataType,
    dims: tensor.dims.map(Number),
    isBatched: config.maxBatchSize > 0,
    note: tensor.reshape &&
      `the reshape to ${formatShape(tensor.reshape.shape)} of model ${config.name} is inside of ` +
        `that model: its dims are what other models see`,
  };
}

/** An ensemble is the inside of its own reshape: steps see what it reshapes to, clients see its dims. */
function ensembleView(
  config: ModelConfig,
  side: "input" | "output",
  name: string,
  path: string,
): TensorView {
  const { reshape, dims } = config[side].find((candidate) => candidate.name === name)!;
  const view = tensorView(config, side, name, path)!;
  if (reshape === undefined) return view;
  return {
    ...view,
    dims: reshape.shape.map(Number),
    note: `steps of ${config.name} see the reshape of its ${side} ${name}, clients its dims ` +
      formatShape(dims),
  };
}

function differenceOf(left: TensorView, right: TensorView): string | undefined {
  if (left.dataType !== right.dataType) {
    return `inconsistent data type: TYPE_${typeName(left)} is inferred from model ${left.model} ` +
      `while TYPE_${typeName(right)} is inferred from model ${right.model}`;
  }
  if (matchesDims(left.dims, right.dims)) return undefined;
  const [leftShape, rightShape] = [fullShape(left), fullShape(right)];
  if (matchesDims(leftShape, rightShape)) return undefined;
  return `inconsistent shape: ${formatShape(leftShape)} is inferred from model ${left.model} ` +
    `while ${formatShape(rightShape)} is inferred from model ${right.model}`;
}

function typeName({ dataType }: TensorView): string {
  return String(DataType[dataType]).replace(/^TYPE_/, "");
}

function fullShape({ dims, isBatched }: TensorView): readonly number[] {
  return isBatched ? [-1, ...dims] : dims;
}

/** No step may read from two decoupled ones: nobody could say which answers belong together. */
function checkOrigins({ ensemble, graph, models, issues }: CheckContext): void {
  const origins = new Map<string, ReadonlySet<EnsembleStep>>();
  const waiting = new Set(models);
  for (let size = -1; size !== waiting.size;) {
    size = waiting.size;
    for (const model of waiting) {
      const { step, config } = model;
      const isReady = step.inputs.every(({ outer }) =>
        !graph.writers.has(outer) || origins.has(outer)
      );
      if (!isReady) continue;
      waiting.delete(model);
      const from = new Set(step.inputs.flatMap(({ outer }) => [...origins.get(outer) ?? []]));
      if (from.size > 1) {
        const names = [...from].map((origin) => `step ${origin.index} ('${origin.modelName}')`);
        issues.push({
          path: stepPath(step),
          message: `in ensemble ${ensemble.name}, step of model '${config.name}' receives inputs ` +
            `originated from different decoupled models`,
          hint: `they come from ${names.join(" and ")}`,
        });
      }
      const own = isDecoupledComposition([config]) ? new Set([step]) : from;
      for (const { outer } of step.outputs) origins.set(outer, own);
    }
  }
}

function choice(what: string, name: string, candidates: readonly string[]): string {
  const list = candidates.slice(0, 20).join(", ");
  const near = nearest(name, candidates);
  return near === "" ? `the model has the ${what} ${list || "none"}` : near.slice(2);
}

/** `, did you mean 'x'?` for the candidate that differs in few letters, else "". */
function nearest(name: string, candidates: readonly string[]): string {
  let best: string | undefined;
  let bestDistance = Math.max(2, Math.floor(name.length / 3)) + 1;
  for (const candidate of candidates) {
    if (Math.abs(candidate.length - name.length) >= bestDistance) continue;
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance >= bestDistance || distance >= name.length) continue;
    best = candidate;
    bestDistance = distance;
  }
  return best === undefined ? "" : `, did you mean '${best}'?`;
}
