import type { ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import { stepModelId } from "./composing_models.ts";

/** What one input or output of a step's model is called in the ensemble. */
export interface TensorMapping {
  /** Name in the composing model. */
  readonly inner: string;
  /** Name of the ensemble tensor. */
  readonly outer: string;
}

/** One step of an ensemble. */
export interface EnsembleStep {
  readonly index: number;
  readonly modelName: string;
  /** What the model is kept under. */
  readonly modelId: string;
  /** -1 or, unless the model has a version 0, 0 = the latest. */
  readonly modelVersion: bigint;
  readonly inputs: readonly TensorMapping[];
  readonly outputs: readonly TensorMapping[];
}

/** The steps of an ensemble and who reads which tensor; prepared once at load. */
export interface EnsembleGraph {
  readonly steps: readonly EnsembleStep[];
  /** Steps that read a tensor, by its name. */
  readonly readers: ReadonlyMap<string, readonly EnsembleStep[]>;
  /** The step that writes a tensor, by its name. */
  readonly writers: ReadonlyMap<string, EnsembleStep>;
}

/** What one request needs of a graph. */
export interface NeededSteps {
  readonly steps: ReadonlySet<EnsembleStep>;
  /** How often a value of each tensor is used: by the needed steps, and once for the answer. */
  readonly useCounts: ReadonlyMap<string, number>;
}

/** The graph of a configuration with `ensemble_scheduling`. */
export function createEnsembleGraph({ schedulingChoice }: ModelConfig): EnsembleGraph {
  if (schedulingChoice.case !== "ensembleScheduling") throw new TypeError("No ensemble");
  const steps = schedulingChoice.value.step.map((step, index): EnsembleStep => ({
    index,
    modelName: step.modelName,
    modelId: stepModelId(step),
    modelVersion: step.modelVersion,
    inputs: mappings(step.inputMap),
    outputs: mappings(step.outputMap),
  }));
  const readers = new Map<string, EnsembleStep[]>();
  const writers = new Map<string, EnsembleStep>();
  for (const step of steps) {
    for (const { outer } of step.inputs) {
      const known = readers.get(outer);
      if (known === undefined) readers.set(outer, [step]);
      else if (known.at(-1) !== step) known.push(step);
    }
    for (const { outer } of step.outputs) writers.set(outer, step);
  }
  return { steps, readers, writers };
}

function mappings(map: Readonly<Record<string, string>>): TensorMapping[] {
  return Object.entries(map).map(([inner, outer]) => ({ inner, outer }));
}

/** Leaves out the steps that do not lead to a requested output (scheduling.md §5.2). */
export function selectNeededSteps(graph: EnsembleGraph, outputs: readonly string[]): NeededSteps {
  const steps = new Set<EnsembleStep>();
  const waiting = [...outputs];
  for (let tensor = waiting.pop(); tensor !== undefined; tensor = waiting.pop()) {
    const step = graph.writers.get(tensor);
    if (step === undefined || steps.has(step)) continue;
    steps.add(step);
    for (const { outer } of step.inputs) waiting.push(outer);
  }
  const useCounts = new Map<string, number>();
  const use = (tensor: string) => useCounts.set(tensor, (useCounts.get(tensor) ?? 0) + 1);
  for (const step of steps) {
    for (const tensor of new Set(step.inputs.map(({ outer }) => outer))) use(tensor);
  }
  for (const output of outputs) use(output);
  return { steps, useCounts };
}

/**
 * How often a value of each tensor is used in the iterations after the first. Only what comes from a decoupled step
 * alone has such values: a step, or an answer, that also needs something else has but one turn, and must not keep what
 * the decoupled step sends after that.
 */
export function countLaterUses(
  graph: EnsembleGraph,
  request: {
    readonly needed: NeededSteps;
    readonly outputs: readonly string[];
    readonly isDecoupled: (step: EnsembleStep) => boolean;
  },
): ReadonlyMap<string, number> {
  const { needed, outputs, isDecoupled } = request;
  const once = new Set<string>();
  const onlyOnce = new Set<EnsembleStep>();
  const waiting = [...needed.useCounts.keys()].filter((tensor) => !graph.writers.has(tensor));
  for (let tensor = waiting.pop(); tensor !== undefined; tensor = waiting.pop()) {
    if (once.has(tensor)) continue;
    once.add(tensor);
    for (const step of graph.readers.get(tensor) ?? []) {
      onlyOnce.add(step);
      if (!isDecoupled(step)) waiting.push(...step.outputs.map(({ outer }) => outer));
    }
  }
  const counts = new Map<string, number>();
  const use = (tensor: string) => counts.set(tensor, (counts.get(tensor) ?? 0) + 1);
  for (const step of needed.steps) {
    if (onlyOnce.has(step)) continue;
    for (const tensor of new Set(step.inputs.map(({ outer }) => outer))) use(tensor);
  }
  if (!outputs.some((output) => once.has(output))) { for (const output of outputs) use(output); }
  return counts;
}
