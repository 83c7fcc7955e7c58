import {
  BatchInput_Kind,
  BatchOutput_Kind,
  DataType,
  type ModelConfig,
  type ModelInput,
  ModelInput_Format,
  type ModelOutput,
} from "./gen/model_config_pb.ts";
import { checkSequenceStates } from "./model_config_check_sequence.ts";
import type { ConfigIssue } from "./model_config_issue.ts";
import { isPathInside } from "./model_config_path.ts";

const NONE: ReadonlySet<string> = new Set();
const TENSORRT_PLATFORM = "tensorrt_plan";
const EMPTY_RESHAPE =
  "cannot have empty reshape for non-batching model as scalar tensors are not supported";
const WARMUP_FILE = "inputDataFile";

/**
 * The checks of config.md §6.2 and §6.5, all of them. What they find makes the model UNAVAILABLE.
 * `completed` names tensors whose dims come from the model itself: without batching they may be empty there.
 */
export function checkModelIo(
  config: ModelConfig,
  completed: ReadonlySet<string> = NONE,
): ConfigIssue[] {
  const issues: ConfigIssue[] = [];
  for (const [index, input] of config.input.entries()) {
    issues.push(
      ...checkTensor(config, input, { word: "input", path: `input[${index}]`, completed }),
    );
    issues.push(...checkInputFormat(config, input, `input[${index}]`));
  }
  for (const [index, output] of config.output.entries()) {
    const path = `output[${index}]`;
    issues.push(...checkTensor(config, output, { word: "output", path, completed }));
    if (output.labelFilename !== "" && !isPathInside(output.labelFilename)) {
      issues.push({
        path: `${path}.label_filename`,
        message: `label file path '${output.labelFilename}' for output '${output.name}' in model ` +
          `'${config.name}' is outside model directory`,
        code: "UNSUPPORTED",
      });
    }
  }
  issues.push(...checkBatchInputs(config), ...checkBatchOutputs(config));
  if (config.schedulingChoice.case === "sequenceBatching") {
    issues.push(...checkSequenceStates(config, config.schedulingChoice.value));
  }
  issues.push(...checkFilePaths(config));
  return issues;
}

interface TensorPlace {
  readonly word: "input" | "output";
  readonly path: string;
  readonly completed: ReadonlySet<string>;
}

function checkTensor(
  config: ModelConfig,
  tensor: ModelInput | ModelOutput,
  place: TensorPlace,
): ConfigIssue[] {
  const issues: ConfigIssue[] = [];
  const prefix = `model ${place.word} '${tensor.name}'`;
  const add = (field: string, message: string, start = prefix): void => {
    const path = field === "" ? place.path : `${place.path}.${field}`;
    const isCompletable = message.startsWith("must specify") || message === EMPTY_RESHAPE;
    issues.push({ path, message: `${start} ${message} for ${config.name}`, isCompletable });
  };
  if (tensor.name === "") add("", "must specify 'name'", `model ${place.word}`);
  if (tensor.dataType === DataType.TYPE_INVALID) add("data_type", "must specify 'data_type'");
  if (tensor.dims.length === 0) add("dims", "must specify 'dims'");
  const mayBeEmpty = config.maxBatchSize === 0 && place.completed.has(tensor.name);
  for (const [index, dim] of tensor.dims.entries()) {
    if (isDimension(dim) || (dim === 0n && mayBeEmpty)) continue;
    add(
      `dims[${index}]`,
      "dimension must be integer >= 1, or -1 to indicate a variable-size dimension",
    );
  }
  if (tensor.reshape !== undefined) {
    for (const [field, message] of reshapeProblems(config, tensor, tensor.reshape.shape)) {
      add(field, message);
    }
  }
  const isTensorRt = config.platform === TENSORRT_PLATFORM;
  if (tensor.isShapeTensor && !isTensorRt) {
    add("is_shape_tensor", "shape tensors are only supported for TensorRT platform");
  }
  if (tensor.isNonLinearFormatIo && !isTensorRt) {
    add(
      "is_non_linear_format_io",
      "Non-linear IO format is only supported for the TensorRT platform",
    );
  } else if (tensor.isNonLinearFormatIo && tensor.dims.length !== 3) {
    add("is_non_linear_format_io", `Non-linear IO format ${place.word} requires 3 dims`);
  }
  return issues;
}

function isDimension(dim: bigint): boolean {
  return dim >= 1n || dim === -1n;
}

/** Faults of a reshape as field and text. */
function reshapeProblems(
  config: ModelConfig,
  tensor: ModelInput | ModelOutput,
  shape: readonly bigint[],
): [string, string][] {
  if (shape.length === 0 && config.maxBatchSize === 0) {
    return [["reshape", EMPTY_RESHAPE]];
  }
  const wrong = shape.flatMap((dim, index): [string, string][] =>
    isDimension(dim) ? [] : [[
      `reshape.shape[${index}]`,
      "reshape dimensions must be integer >= 1, or -1 to indicate a variable-size dimension",
    ]]
  );
  if (wrong.length > 0 || !tensor.dims.every(isDimension)) return wrong;
  const dimsParts = productsBetweenFree(tensor.dims);
  const shapeParts = productsBetweenFree(shape);
  if (dimsParts.length !== shapeParts.length) {
    return [[
      "reshape",
      dimsParts.length === 1 || shapeParts.length === 1
        ? "has different size for dims and reshape"
        : "has different number of variable-size dimensions for dims and reshape",
    ]];
  }
  if (dimsParts.every((product, index) => product === shapeParts[index])) return [];
  return [["reshape", "has different size for dims and reshape"]];
}

/** Products of the fixed dimensions before, between and behind the free ones. */
function productsBetweenFree(dims: readonly bigint[]): bigint[] {
  const products = [1n];
  for (const dim of dims) {
    if (dim === -1n) products.push(1n);
    else products.push((products.pop() ?? 1n) * dim);
  }
  return products;
}

function checkInputFormat(config: ModelConfig, input: ModelInput, path: string): ConfigIssue[] {
  if (input.format === ModelInput_Format.NONE || input.dims.length === 3) return [];
  return [{
    path: `${path}.format`,
    message: `model input NHWC/NCHW require 3 dims for ${config.name}`,
  }];
}

function checkBatchInputs(config: ModelConfig): ConfigIssue[] {
  const issues: ConfigIssue[] = [];
  const inputs = new Set(config.input.map((input) => input.name));
  for (const [index, batchInput] of config.batchInput.entries()) {
    const path = `batch_input[${index}]`;
    const kind = BatchInput_Kind[batchInput.kind];
    const add = (field: string, message: string): void =>
      void issues.push({ path: path + field, message: `${message} for ${config.name}` });
    if (batchInput.sourceInput.length !== 1) {
      const count = batchInput.sourceInput.length;
      add("", `batch input kind '${kind}' expects 1 source input, got ${count}`);
    }
    if (batchInput.dataType !== DataType.TYPE_INT32 && batchInput.dataType !== DataType.TYPE_FP32) {
      add(".data_type", "batch input data type must be TYPE_INT32 or TYPE_FP32");
    }
    for (const [position, source] of batchInput.sourceInput.entries()) {
      if (inputs.has(source)) continue;
      add(`.source_input[${position}]`, `unknown source input name '${source}'`);
    }
    if (batchInput.targetName.length === 0) {
      add("", `batch input kind '${kind}' must specify 'target_name'`);
    }
  }
  return issues;
}

function checkBatchOutputs(config: ModelConfig): ConfigIssue[] {
  const issues: ConfigIssue[] = [];
  const inputs = new Set(config.input.map((input) => input.name));
  const outputs = new Set(config.output.map((output) => output.name));
  for (const [index, batchOutput] of config.batchOutput.entries()) {
    const path = `batch_output[${index}]`;
    const add = (field: string, message: string): void =>
      void issues.push({ path: path + field, message: `${message} for ${config.name}` });
    if (batchOutput.sourceInput.length !== 1) {
      const kind = BatchOutput_Kind[batchOutput.kind];
      const count = batchOutput.sourceInput.length;
      add("", `batch output kind '${kind}' expects 1 source input, got ${count}`);
    }
    for (const [position, source] of batchOutput.sourceInput.entries()) {
      if (inputs.has(source)) continue;
      add(`.source_input[${position}]`, `unknown source input name '${source}'`);
    }
    const seen = new Set<string>();
    for (const [position, target] of batchOutput.targetName.entries()) {
      const field = `.target_name[${position}]`;
      if (!outputs.has(target)) add(field, `unknown target output name '${target}'`);
      else if (seen.has(target)) {
        add(field, `target output name '${target}' can only be specified once`);
      }
      seen.add(target);
    }
  }
  return issues;
}

/** Paths that would lead out of the model's folder. */
function checkFilePaths(config: ModelConfig): ConfigIssue[] {
  const issues: ConfigIssue[] = [];
  const check = (path: string, file: string, what: string): void => {
    if (isPathInside(file)) return;
    const message = `${what} '${file}' in model '${config.name}' is outside model directory`;
    issues.push({ path, message });
  };
  check("default_model_filename", config.defaultModelFilename, "model file path");
  for (const [key, file] of Object.entries(config.ccModelFilenames)) {
    check(`cc_model_filenames[${JSON.stringify(key)}]`, file, "model file path");
  }
  for (const [index, warmup] of config.modelWarmup.entries()) {
    for (const [name, input] of Object.entries(warmup.inputs)) {
      if (input.inputDataType.case !== WARMUP_FILE) continue;
      const path = `model_warmup[${index}].inputs[${JSON.stringify(name)}].input_data_file`;
      check(path, input.inputDataType.value, "warmup file path");
    }
  }
  return issues;
}
