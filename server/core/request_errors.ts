import type { InferInput, InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { formatShape } from "../../proto/tensor.ts";
import { requestPrefix } from "./scheduler/job.ts";
import type { InputRule, TensorRules } from "./tensor_rules.ts";

/** Names in an error text: all of them would be as long as the client likes. */
const MAX_NAMES = 50;

function quoteNames(names: readonly string[]): string {
  const shown = names.slice(0, MAX_NAMES).map((name) => `'${name}'`);
  if (names.length > MAX_NAMES) shown.push("...");
  return `[${shown.join(",")}]`;
}

/** The error of a request with too few or too many inputs (http.md §9.8). */
export function missingInputsError(request: InferRequest, rules: TensorRules): ServerError {
  const given = request.inputs.map(({ name }) => name);
  const missing = rules.inputs
    .filter((rule) => !rule.isOptional && !given.includes(rule.name))
    .map(({ name }) => name);
  const total = rules.inputs.length;
  const expected = rules.requiredCount === total
    ? `expected ${total} inputs`
    : `expected number of inputs between ${rules.requiredCount} and ${total}`;
  return new ServerError(
    "INVALID_ARG",
    `${requestPrefix(request.id)}${expected} but got ${given.length} inputs for model ` +
      `'${rules.model}'. Got input(s) ${quoteNames(given)}, but missing required input(s) ` +
      `${quoteNames(missing)}. Please provide all required input(s).`,
  );
}

/**
 * The error of a batch of too many rows. A long vector without its batch dimension looks like a big batch: then the
 * shape that was expected is told as well.
 */
export function batchTooLargeError(
  inputs: readonly InferInput[],
  id: string,
  rules: TensorRules,
): ServerError {
  const message = `inference request batch-size must be <= ${rules.maxBatchSize} for ` +
    `'${rules.model}'`;
  const flat = inputs.find(({ name, shape }) =>
    shape.length === rules.inputByName.get(name)?.dims.length
  );
  const rule = flat && rules.inputByName.get(flat.name);
  const hint = flat && rule ? `: ${shapeText(flat, rule, rules)}` : "";
  return new ServerError("INVALID_ARG", `${requestPrefix(id)}${message}${hint}`);
}

/** The error of an input whose shape does not fit the configuration (http.md §9.8). */
export function shapeError(
  input: InferInput,
  context: { readonly rule: InputRule; readonly rules: TensorRules; readonly id: string },
): ServerError {
  const { rule, rules, id } = context;
  return new ServerError(
    "INVALID_ARG",
    `${requestPrefix(id)}${shapeText(input, rule, rules)}`,
  );
}

function shapeText(input: InferInput, rule: InputRule, rules: TensorRules): string {
  const isBatching = rules.maxBatchSize > 0;
  const expected = formatShape(isBatching ? [-1, ...rule.dims] : rule.dims);
  const note = isBatching
    ? "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to " +
      "be prepended to each input shape. If you want to specify the full shape including the " +
      "batch dim in your input dims config, try setting max_batch_size to zero. See the model " +
      "configuration docs for more info on max_batch_size."
    : "";
  return `unexpected shape for input '${input.name}' for model '${rules.model}'. Expected ` +
    `${expected}, got ${formatShape(input.shape)}. ${note}`;
}
