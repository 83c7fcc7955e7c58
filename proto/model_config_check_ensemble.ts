import type { ModelConfig, ModelEnsembling } from "./gen/model_config_pb.ts";
import type { ConfigIssue } from "./model_config_issue.ts";

type AddIssue = (path: string, message: string) => void;

/** The checks of config.md §7.1: what can be said about an ensemble without looking at its composing models. */
export function checkEnsemble(config: ModelConfig, ensembling: ModelEnsembling): ConfigIssue[] {
  const issues: ConfigIssue[] = [];
  const add: AddIssue = (path, message) => void issues.push({ path, message });
  const name = config.name;
  if (config.platform !== "ensemble") {
    add(
      "ensemble_scheduling",
      `ensemble scheduling cannot be set for model '${name}' whose platform is not ensemble`,
    );
  }
  if (config.instanceGroup.length > 0) {
    add("instance_group", `instance group should not be specified for ensemble '${name}'`);
  }
  if (config.optimization !== undefined) {
    add("optimization", `optimization should not be specified for ensemble '${name}'`);
  }
  if (config.modelWarmup.length > 0) {
    add("model_warmup", `model_warmup can not be specified for ensemble '${name}'`);
  }
  if (ensembling.step.length === 0) {
    add("ensemble_scheduling.step", `must specify 'step' for ensemble '${name}'`);
    return issues;
  }
  checkSteps(config, ensembling, add);
  // A graph with holes in its steps would only repeat the same faults in other words.
  if (issues.length === 0) checkGraph(config, ensembling, add);
  return issues;
}

function checkSteps(config: ModelConfig, ensembling: ModelEnsembling, add: AddIssue): void {
  const inputs = new Set(config.input.map((input) => input.name));
  const written = new Set<string>();
  for (const [index, step] of ensembling.step.entries()) {
    const path = `ensemble_scheduling.step[${index}]`;
    const missing = (field: string): void =>
      add(path, `must specify '${field}' in step ${index} of ensemble '${config.name}'`);
    if (step.modelName === "") missing("model_name");
    if (Object.keys(step.inputMap).length === 0) missing("input_map");
    if (Object.keys(step.outputMap).length === 0) missing("output_map");
    for (const tensor of Object.values(step.outputMap)) {
      if (inputs.has(tensor)) {
        add(
          `${path}.output_map`,
          `ensemble input '${tensor}' can not appear in an output map for ensemble ` +
            `'${config.name}' step ${index}`,
        );
      } else if (written.has(tensor)) {
        add(
          `${path}.output_map`,
          `ensemble tensor '${tensor}' can appear in an output map only once for ensemble ` +
            `'${config.name}' step ${index}`,
        );
      }
      written.add(tensor);
    }
  }
}

function checkGraph(config: ModelConfig, ensembling: ModelEnsembling, add: AddIssue): void {
  const name = config.name;
  const steps = ensembling.step.map((step) => ({
    reads: new Set(Object.values(step.inputMap)),
    writes: new Set(Object.values(step.outputMap)),
  }));
  const read = new Set(steps.flatMap((step) => [...step.reads]));
  const written = new Set(steps.flatMap((step) => [...step.writes]));
  const inputs = new Set(config.input.map((input) => input.name));
  const outputs = new Set(config.output.map((output) => output.name));
  const ready = reachableTensors(inputs, steps);
  const told = new Set<string>();
  for (const [index, { name: input }] of config.input.entries()) {
    if (read.has(input)) continue;
    told.add(input);
    add(`input[${index}]`, `ensemble input '${input}' for ensemble ${name}' is not used`);
  }
  for (const [index, { name: output }] of config.output.entries()) {
    told.add(output);
    if (!written.has(output) && !read.has(output)) {
      add(`output[${index}]`, `ensemble output '${output}' for ensemble ${name}' is not used`);
    } else if (!ready.has(output)) {
      const step = steps.find((candidate) => candidate.writes.has(output));
      const cause = [...step?.reads ?? []].find((tensor) => !ready.has(tensor));
      if (cause !== undefined) told.add(cause);
      const tail = cause === undefined
        ? ""
        : `: at least one of its depending tensors, '${cause}', is not connected`;
      add(
        `output[${index}]`,
        `output '${output}' for ensemble '${name}' is not written${tail}`,
      );
    }
  }
  for (const tensor of read.union(written)) {
    const isProduced = inputs.has(tensor) || written.has(tensor);
    const isConsumed = outputs.has(tensor) || read.has(tensor);
    if ((isProduced && isConsumed) || told.has(tensor)) continue;
    add("ensemble_scheduling", `ensemble tensor '${tensor}' is unused in ensemble '${name}'`);
  }
}

/** Tensors that get a value when steps run as soon as all their inputs have one. */
function reachableTensors(
  inputs: ReadonlySet<string>,
  steps: readonly { reads: Set<string>; writes: Set<string> }[],
): Set<string> {
  let ready = new Set(inputs);
  for (;;) {
    const next = steps
      .filter((step) => step.reads.isSubsetOf(ready))
      .reduce((tensors, step) => tensors.union(step.writes), ready);
    if (next.size === ready.size) return ready;
    ready = next;
  }
}
