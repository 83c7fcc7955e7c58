import type { ModelInput, ModelOutput } from "../proto/gen/model_config_pb.ts";
import { DataType } from "../proto/gen/model_config_pb.ts";
import { configError, configFaults, type ConfigIssue } from "../proto/model_config.ts";
import { formatShape } from "../proto/tensor.ts";
import type { SessionSignature, TensorSignature } from "../ffi/onnxruntime/signature.ts";
import type { ModelSource } from "./backend.ts";
import { checkIsTensor } from "./onnx_auto_complete.ts";
import { sequenceTensorChecks } from "./onnx_sequence_check.ts";
import { checkDims, type ModelTensors } from "./onnx_dims_check.ts";
import { configTypeName } from "./onnx_tensor_types.ts";

/**
 * Compares the configuration with the model (config.md §8.2): number, names, types and dims of inputs and outputs,
 * sequence controls, states and generated inputs.
 * @throws ServerError with every mismatch.
 */
export function checkSignature(source: ModelSource, signature: SessionSignature): void {
  const tensors: ModelTensors = {
    modelName: source.name,
    isBatching: source.config.maxBatchSize > 0,
    inputs: byName(signature.inputs),
    outputs: byName(signature.outputs),
    initializers: byName(signature.overridableInitializers),
  };
  const { config } = source;
  const issues: ConfigIssue[] = [];
  let fedCount = 0;
  const collect = (path: string, check: () => number | void): void => {
    try {
      fedCount += check() ?? 0;
    } catch (reason) {
      for (const issue of configFaults(reason).issues) {
        issues.push({ ...issue, path: issue.path === "" ? path : `${path}.${issue.path}` });
      }
    }
  };
  for (const { path, check } of sequenceTensorChecks(config, tensors)) {
    collect(path, () => {
      check();
      return 1;
    });
  }
  collect("batch_input", () => checkBatchInputs(source, tensors));
  // A tensor that the server feeds wrongly would only make the number of inputs wrong, too.
  if (issues.length === 0) collect("input", () => checkInputCount(source, tensors, fedCount));
  for (const [index, input] of config.input.entries()) {
    collect(`input[${index}]`, () => checkInput(input, tensors));
  }
  collect("input", () => checkNoInputTwice(source, tensors));
  const scattered = new Set(config.batchOutput.flatMap(({ targetName }) => targetName));
  for (const [index, output] of config.output.entries()) {
    const isScattered = scattered.has(output.name);
    collect(`output[${index}]`, () => checkOutput(output, tensors, { isScattered }));
  }
  if (issues.length > 0) throw configError(issues);
}

function byName(tensors: readonly TensorSignature[]): Map<string, TensorSignature> {
  return new Map(tensors.map((tensor) => [tensor.name, tensor]));
}

function refuse(message: string, field = ""): never {
  throw configError([{ path: field, message }]);
}

/** Runs a check of one field of a tensor. */
function atField(field: string, check: () => void): void {
  try {
    check();
  } catch (reason) {
    throw configError(configFaults(reason).issues.map((issue) => ({ ...issue, path: field })));
  }
}

function checkInputCount(source: ModelSource, tensors: ModelTensors, fedCount: number): void {
  const listed = source.config.input.filter(({ name, optional }) =>
    !optional || tensors.inputs.has(name)
  );
  const expected = listed.length + fedCount;
  if (expected === tensors.inputs.size) return;
  refuse(
    `unable to load model '${source.name}', configuration expects ${expected} inputs, model ` +
      `provides ${tensors.inputs.size}`,
  );
}

/** The number alone does not tell that every input of the model is there. */
function checkNoInputTwice(source: ModelSource, tensors: ModelTensors): void {
  const seen = new Set<string>();
  for (const { name } of source.config.input) {
    if (seen.has(name)) {
      const missing = [...tensors.inputs.keys()].filter((each) => !seen.has(each));
      refuse(
        `unable to load model '${source.name}', configuration lists input '${name}' more than ` +
          `once; not listed so far: ${missing.join(", ")}`,
      );
    }
    seen.add(name);
  }
}

function checkInput(input: ModelInput, tensors: ModelTensors): void {
  const { modelName, isBatching, inputs, initializers } = tensors;
  const tensor = inputs.get(input.name) ??
    (input.optional ? initializers.get(input.name) : undefined);
  if (tensor === undefined) {
    const allowed = [...inputs.keys(), ...initializers.keys()];
    refuse(
      `unexpected inference input '${input.name}', allowed inputs are: ${allowed.join(", ")}`,
      "name",
    );
  }
  checkIsTensor(tensor);
  if (!inputs.has(input.name) && isBatching) {
    refuse(
      `unable to load model '${modelName}', optional input '${input.name}' is not supported for ` +
        `models that support batching`,
    );
  }
  checkType(input, tensor, { modelName, kind: "input" });
  if (input.allowRaggedBatch && isBatching) {
    const dims = tensor.dims ?? [];
    if (dims.length === 1 && dims[0] === -1) return;
    refuse(
      `unable to load model '${modelName}', configuration expects model provides input with shape ` +
        `[-1]  for ragged input '${input.name}', model provides ${formatShape(dims)}`,
    );
  }
  atField(
    "dims",
    () => checkDims(tensor, input.reshape?.shape ?? input.dims, { tensors, isExact: false }),
  );
}

function checkOutput(
  output: ModelOutput,
  tensors: ModelTensors,
  { isScattered }: { readonly isScattered: boolean },
): void {
  const tensor = tensors.outputs.get(output.name);
  if (tensor === undefined) {
    const allowed = [...tensors.outputs.keys()].join(", ");
    refuse(
      `unexpected inference output '${output.name}', allowed outputs are: ${allowed}`,
      "name",
    );
  }
  checkIsTensor(tensor);
  checkType(output, tensor, { modelName: tensors.modelName, kind: "output" });
  if (isScattered) return;
  atField(
    "dims",
    () => checkDims(tensor, output.reshape?.shape ?? output.dims, { tensors, isExact: true }),
  );
}

function checkType(
  { name, dataType }: { readonly name: string; readonly dataType: DataType },
  tensor: TensorSignature,
  { modelName, kind }: { readonly modelName: string; readonly kind: "input" | "output" },
): void {
  const expected = DataType[dataType];
  const provided = configTypeName(tensor.elementType);
  if (expected === provided) return;
  refuse(
    `unable to load model '${modelName}', configuration expects datatype ${expected} for ${kind} ` +
      `'${name}', model provides ${provided}`,
    "data_type",
  );
}

function checkBatchInputs(source: ModelSource, tensors: ModelTensors): number {
  let count = 0;
  for (const { targetName, dataType } of source.config.batchInput) {
    if (targetName.length === 0) {
      refuse(`batch input must specify 'target_name' for ${source.name}`);
    }
    for (const name of targetName) {
      const tensor = tensors.inputs.get(name);
      if (tensor === undefined) {
        const allowed = [...tensors.inputs.keys()].join(", ");
        refuse(
          `unable to load model '${source.name}', batch input '${name}' is no input of the model, ` +
            `allowed inputs are: ${allowed}`,
        );
      }
      checkType({ name, dataType }, tensor, { modelName: source.name, kind: "input" });
      count++;
    }
  }
  return count;
}
