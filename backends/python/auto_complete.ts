import { create } from "@bufbuild/protobuf";
import { type ModelConfig, ModelTransactionPolicySchema } from "../../proto/gen/model_config_pb.ts";
import { parseModelConfigJson } from "../../proto/model_config_json.ts";
import { ServerError } from "../../proto/status.ts";

/**
 * Takes over what a model may complete (python-backend.md §A4): batch size, inputs, outputs, the scheduling choice,
 * decoupled. Everything else that it changed is dropped.
 * @throws ServerError INTERNAL when it changed another scheduling choice, INVALID_ARG when what it gave is no config.
 */
export function applyCompletion(config: ModelConfig, completed: unknown): void {
  const { config: given, issues } = parseModelConfigJson(JSON.stringify(completed));
  if (issues.length > 0) {
    const list = issues.map(({ path, message }) => `${path === "" ? "" : `${path}: `}${message}`);
    throw new ServerError(
      "INVALID_ARG",
      `auto_complete_config of model '${config.name}' gives a configuration that is none: ` +
        list.join("; "),
    );
  }
  checkDims(given);
  config.maxBatchSize = given.maxBatchSize;
  config.input = given.input;
  config.output = given.output;
  applyScheduling(config, given);
  const decoupled = given.modelTransactionPolicy?.decoupled;
  if (decoupled === undefined) return;
  config.modelTransactionPolicy ??= create(ModelTransactionPolicySchema);
  config.modelTransactionPolicy.decoupled = decoupled;
}

function applyScheduling(config: ModelConfig, given: ModelConfig): void {
  const before = config.schedulingChoice.case;
  const after = given.schedulingChoice.case;
  if (after === undefined || before === after) return;
  if (before !== undefined) {
    throw new ServerError(
      "INTERNAL",
      `Cannot update scheduling choice from ${before} to ${after} when auto-completing.`,
    );
  }
  config.schedulingChoice = given.schedulingChoice;
}

/** What a file of weights may say of itself, a model in Python may not say of its inputs and outputs. */
function checkDims({ name, input, output }: ModelConfig): void {
  const kinds = [["input", input], ["output", output]] as const;
  for (const [kind, tensors] of kinds) {
    const wrong = tensors.find(({ dims }) => dims.some((dim) => dim === 0n || dim < -1n));
    if (wrong === undefined) continue;
    throw new ServerError(
      "INVALID_ARG",
      `model ${kind} '${wrong.name}' dimension must be integer >= 1, or -1 to indicate a ` +
        `variable-size dimension for ${name}`,
    );
  }
}
