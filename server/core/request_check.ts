import type { InferInput, InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { byteSizeOf, formatShape, MAX_SIZE, type Tensor, withShape } from "../../proto/tensor.ts";
import { checkBytesElements } from "./bytes_check.ts";
import { batchTooLargeError, missingInputsError, shapeError } from "./request_errors.ts";
import { requestPrefix } from "./scheduler/job.ts";
import { type InputRule, reshapeTo, type TensorRules } from "./tensor_rules.ts";

/** A request that agrees with the configuration, in the form backends take. */
export interface CheckedRequest {
  /** Inputs in the order of the configuration, with the shapes the model sees. */
  readonly inputs: readonly Tensor[];
  /** Names of the outputs to compute, each once. */
  readonly outputs: readonly string[];
  /** Rows of the request, 1 for models that do not batch. */
  readonly batchSize: number;
}

/**
 * Checks a request against a model's configuration, in the order and with the texts of http.md §9.8.
 * Inputs in shared memory were taken from there before.
 * @throws ServerError INVALID_ARG.
 */
export function checkRequest(request: InferRequest, rules: TensorRules): CheckedRequest {
  const outputs = checkOutputs(request, rules);
  const inputs = orderInputs(request, rules);
  const batchSize = rules.maxBatchSize > 0 ? checkBatchSize(inputs, request.id, rules) : 1;
  let result: Tensor[] | undefined;
  for (let index = 0; index < inputs.length; index++) {
    const input = inputs[index]!;
    const rule = rules.inputByName.get(input.name)!;
    const seen = checkInput(input, { rule, rules, id: request.id });
    if (seen === input && result === undefined) continue;
    result ??= inputs.slice(0, index);
    result.push(seen);
  }
  if (rules.maxBatchSize > 0 && batchSize === 0) {
    fail(request.id, `inference request batch-size must be >= 1 for '${rules.model}'`);
  }
  return { inputs: result ?? inputs, outputs, batchSize };
}

function fail(id: string, message: string): never {
  throw new ServerError("INVALID_ARG", requestPrefix(id) + message);
}

function checkOutputs(request: InferRequest, rules: TensorRules): readonly string[] {
  if (request.outputs.length === 0) return rules.outputNames;
  const names: string[] = [];
  const seen = request.outputs.length > 8 ? new Set<string>() : undefined;
  for (const { name } of request.outputs) {
    if (!rules.outputByName.has(name)) {
      throw new ServerError(
        "INVALID_ARG",
        `unexpected inference output '${name}' for model '${rules.model}'`,
      );
    }
    // An output that is asked for twice is answered once.
    if (seen === undefined ? names.includes(name) : seen.has(name)) continue;
    seen?.add(name);
    names.push(name);
  }
  return names;
}

/** Checks number and names of the inputs, and puts them into the order of the configuration. */
function orderInputs(request: InferRequest, rules: TensorRules): readonly InferInput[] {
  const { inputs, id } = request;
  const duplicate = findDuplicate(inputs);
  if (duplicate !== undefined) fail(id, `input '${duplicate}' already exists in request`);
  if (inputs.length < rules.requiredCount || inputs.length > rules.inputs.length) {
    throw missingInputsError(request, rules);
  }
  let isOrdered = inputs.length === rules.inputs.length;
  let requiredCount = 0;
  for (let index = 0; index < inputs.length; index++) {
    const input = inputs[index]!;
    const rule = rules.inputByName.get(input.name);
    if (rule === undefined) {
      throw new ServerError(
        "INVALID_ARG",
        `unexpected inference input '${input.name}' for model '${rules.model}'`,
      );
    }
    if (!rule.isOptional) requiredCount++;
    if (rule !== rules.inputs[index]) isOrdered = false;
  }
  // The number alone does not tell: an optional input may stand in for a required one.
  if (requiredCount < rules.requiredCount) throw missingInputsError(request, rules);
  if (isOrdered) return inputs;
  const byName = new Map(inputs.map((input) => [input.name, input]));
  return rules.inputs.flatMap(({ name }) => byName.get(name) ?? []);
}

function findDuplicate(inputs: readonly InferInput[]): string | undefined {
  if (inputs.length < 2) return undefined;
  const names = new Set<string>();
  for (const { name } of inputs) {
    if (names.has(name)) return name;
    names.add(name);
  }
  return undefined;
}

function checkBatchSize(inputs: readonly InferInput[], id: string, rules: TensorRules): number {
  let batchSize = -1;
  for (const input of inputs) {
    if (rules.hasShapeTensors && rules.inputByName.get(input.name)!.isShapeTensor) continue;
    if (input.shape.length === 0) {
      fail(
        id,
        `input '${input.name}' has no shape but model requires batch dimension for '${rules.model}'`,
      );
    }
    const rows = input.shape[0]!;
    if (batchSize === -1) batchSize = rows;
    else if (rows !== batchSize) {
      fail(
        id,
        `input '${input.name}' batch size does not match other inputs for '${rules.model}'`,
      );
    }
  }
  if (batchSize === -1) return 1;
  if (batchSize > rules.maxBatchSize) throw batchTooLargeError(inputs, id, rules);
  return batchSize;
}

interface InputContext {
  readonly rule: InputRule;
  readonly rules: TensorRules;
  readonly id: string;
}

/** Checks datatype, shape and size of one input; returns it, or a view of it in the shape that the model sees. */
function checkInput(input: InferInput, context: InputContext): Tensor {
  const { rule, rules, id } = context;
  if (input.datatype !== rule.datatype) {
    fail(
      id,
      `inference input '${input.name}' data-type is '${input.datatype}', but model ` +
        `'${rules.model}' expects '${rule.datatype}'`,
    );
  }
  const leading = rules.maxBatchSize > 0 ? 1 : 0;
  const isScalar = leading === 0 && isScalarFor(input.shape, rule.dims);
  const elements = countElements(input, context);
  const isMatch = rule.isShapeTensor
    ? matchesValues(input.shape, rule.dims, leading)
    : matchesDims(input.shape, rule.dims, leading);
  if (!isScalar && !isMatch) {
    throw shapeError(input, context);
  }
  if (rule.elementSize === 0) checkBytesElements(input, elements, { model: rules.model, id });
  else if (!rule.isNonLinear) checkByteSize(input, elements, context);
  if (rule.reshape !== undefined) {
    const shape = reshapeTo(input.shape, leading, { from: rule.dims, to: rule.reshape });
    return withShape(input, shape);
  }
  return isScalar ? withShape(input, [1]) : input;
}

/** A client may send a 0-d tensor to a model whose configuration can only say `dims: [1]`. */
function isScalarFor(shape: readonly number[], dims: readonly number[]): boolean {
  return shape.length === 0 && dims.length === 1 && (dims[0] === 1 || dims[0] === -1);
}

function matchesDims(
  shape: readonly number[],
  dims: readonly number[],
  leading: number,
): boolean {
  if (shape.length !== dims.length + leading) return false;
  for (let index = 0; index < dims.length; index++) {
    const dim = dims[index]!;
    if (dim !== -1 && dim !== shape[leading + index]) return false;
  }
  return true;
}

/** A shape tensor has one dimension; the batch size comes on top of the values that the configuration counts. */
function matchesValues(
  shape: readonly number[],
  dims: readonly number[],
  leading: number,
): boolean {
  return shape.length === 1 && (dims[0] === -1 || shape[0] === (dims[0] ?? 0) + leading);
}

/** Elements the data must have; a batch of no rows counts as one row, so that it never passes unnoticed. */
function countElements(input: InferInput, { rules, id }: InputContext): number {
  const { shape } = input;
  let count = 1;
  let hasZero = false;
  let overflow = false;
  for (let index = 0; index < shape.length; index++) {
    const dim = shape[index]!;
    if (dim === -1) {
      fail(
        id,
        `All input dimensions should be specified for input '${input.name}' for model ` +
          `'${rules.model}', got ${formatShape(shape)}`,
      );
    }
    if (!Number.isSafeInteger(dim) || dim < 0) {
      fail(
        id,
        `invalid shape for input '${input.name}': shape ${formatShape(shape)} contains one or ` +
          `more invalid dimensions`,
      );
    }
    if (dim === 0 && index === 0 && rules.maxBatchSize > 0) continue;
    if (dim === 0) hasZero = true;
    count *= dim;
    if (count > MAX_SIZE) overflow = true;
  }
  if (hasZero) return 0;
  if (overflow) {
    fail(
      id,
      `invalid shape for input '${input.name}': shape ${formatShape(shape)} causes total ` +
        `element count to exceed maximum size of 9223372036854775807`,
    );
  }
  return count;
}

function checkByteSize(input: InferInput, elements: number, context: InputContext): void {
  const expected = elements * context.rule.elementSize;
  const byteSize = byteSizeOf(input);
  if (byteSize === expected) return;
  fail(
    context.id,
    `input byte size mismatch for input '${input.name}' for model '${context.rules.model}'. ` +
      `Expected ${expected}, got ${byteSize}`,
  );
}
