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
