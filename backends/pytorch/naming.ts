import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { configError, type ConfigIssue } from "../../proto/model_config.ts";
import type { TorchArgument } from "../../ffi/pytorch/mod.ts";

/** Which values of a configuration are which of `forward`. */
export interface Naming {
  /** The model takes one dictionary, whose keys are the names of the inputs. */
  readonly inputsAreDict: boolean;
  /** Names of the inputs in the order of `forward`. */
  readonly inputOrder: readonly string[];
  /** Position of an output among what `forward` returns; undefined = by its key in the dictionary. */
  readonly outputIndices: ReadonlyMap<string, number | undefined>;
}

const NUMBERED = /^.+__(\d+)$/;

/**
 * Finds the arguments and results that a configuration names: `<anything>__<index>`, the names of the arguments of
 * `forward`, or the keys of dictionaries.
 * @throws ServerError INVALID_ARG with every name that fits nothing.
 */
export function resolveNames(
  config: ModelConfig,
  { inputs, returns }: { readonly inputs: readonly TorchArgument[]; readonly returns: string },
): Naming {
  const issues: ConfigIssue[] = [];
  const inputsAreDict = inputs.length === 1 && /^Dict\[str/.test(inputs[0]!.type);
  const order: string[] = [];
  for (const [position, { name }] of config.input.entries()) {
    const index = inputsAreDict ? position : indexOf(name, inputs);
    if (index === undefined || (!inputsAreDict && index >= inputs.length)) {
      issues.push({
        path: `input[${position}].name`,
        message: `unexpected inference input '${name}' of model '${config.name}', forward takes: ` +
          `${inputs.map((each) => each.name).join(", ") || "nothing"}; expected one of these ` +
          `names, or INPUT__0 to INPUT__${Math.max(inputs.length - 1, 0)}`,
      });
    } else if (order[index] !== undefined) {
      issues.push({
        path: `input[${position}].name`,
        message: `inputs '${order[index]}' and '${name}' of model '${config.name}' are both ` +
          `argument ${index} of forward`,
      });
    } else order[index] = name;
  }
  inputs.forEach(({ name, isOptional }, index) => {
    if (inputsAreDict || isOptional || order[index] !== undefined) return;
    issues.push({
      path: "input",
      message: `model '${config.name}' lists no input for argument '${name}' of forward: add ` +
        `'${name}' or INPUT__${index}`,
    });
  });
  const outputIndices = outputsOf(config, returns, issues);
  if (issues.length > 0) throw configError(issues);
  return { inputsAreDict, inputOrder: order.filter((name) => name !== undefined), outputIndices };
}

function indexOf(name: string, inputs: readonly TorchArgument[]): number | undefined {
  const named = inputs.findIndex((each) => each.name === name);
  if (named >= 0) return named;
  const number = NUMBERED.exec(name)?.[1];
  return number === undefined ? undefined : Number(number);
}

function outputsOf(config: ModelConfig, returns: string, issues: ConfigIssue[]) {
  const isDict = /^Dict\[str/.test(returns);
  const indices = new Map<string, number | undefined>();
  for (const [position, { name }] of config.output.entries()) {
    const number = NUMBERED.exec(name)?.[1];
    const isOnly = config.output.length === 1 && !/^Tuple\[/.test(returns);
    if (isDict) indices.set(name, undefined);
    else if (number !== undefined) indices.set(name, Number(number));
    else if (isOnly) indices.set(name, 0);
    else {
      issues.push({
        path: `output[${position}].name`,
        message: `output '${name}' of model '${config.name}' has no place among what forward ` +
          `returns (${returns}): name it OUTPUT__<index>, such as OUTPUT__${position}`,
      });
    }
  }
  return indices;
}

/** @throws ServerError when inputs or outputs are missing, which TorchScript does not tell, or strings have a rank. */
export function checkTensors(config: ModelConfig): void {
  const issues: ConfigIssue[] = [];
  const scheduling = config.schedulingChoice;
  const isFed = config.batchInput.length > 0 || scheduling.case === "sequenceBatching" &&
      scheduling.value.controlInput.length + scheduling.value.state.length > 0;
  if (isFed) {
    issues.push({
      path: "",
      message:
        `model '${config.name}' of PyTorch cannot have batch_input, control_input or state: ` +
        `only inputs of requests are given to forward`,
      code: "UNSUPPORTED",
    });
  }
  for (const kind of ["input", "output"] as const) {
    if (config[kind].length === 0) {
      issues.push({
        path: kind,
        message:
          `model '${config.name}' must list its ${kind}s: a TorchScript file (model.pt) tells neither ` +
          `their types nor their shapes`,
      });
    }
    for (const [index, { name, dims, dataType }] of config[kind].entries()) {
      if (dataType === DataType.TYPE_STRING && dims.length !== 1) {
        issues.push({
          path: `${kind}[${index}].dims`,
          message: `${kind} '${name}' of model '${config.name}' holds strings, which PyTorch has ` +
            `in lists only: expected one dimension, got ${dims.length}`,
        });
      }
      if (/^TYPE_(?:UINT16|UINT32|UINT64)$/.test(DataType[dataType])) {
        issues.push({
          path: `${kind}[${index}].data_type`,
          message: `${kind} '${name}' of model '${config.name}' has ${DataType[dataType]}, which ` +
            `TorchScript does not compute with`,
        });
      }
    }
  }
  if (issues.length > 0) throw configError(issues);
}
