import { DataType, type ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { configError, type ConfigIssue } from "../../proto/model_config.ts";
import type { ScriptSignature, TorchArgument } from "../../ffi/pytorch/mod.ts";
import { configuredInputs, configuredOutputs, type ConfiguredTensor } from "./configured_io.ts";

/** Which values of a configuration are which of `forward`. */
export interface Naming {
  /** The model takes one dictionary, whose keys are the names of the inputs. */
  readonly inputsAreDict: boolean;
  /** The inputs in the order of the model. */
  readonly inputs: readonly NamedInput[];
  /** Position of an output among what the model returns; undefined = by its key in the dictionary. */
  readonly outputIndices: ReadonlyMap<string, number | undefined>;
  /** What is worth a warning. */
  readonly warnings: readonly string[];
}

/** An input by its name in the configuration, and the argument or key that it is. */
export interface NamedInput {
  readonly name: string;
  readonly argument: string;
  /** The model runs without it. */
  readonly isOptional: boolean;
}

const TENSORS = /^(?:Optional\[)?(?:Tensor|List\[str\])\]?$/;

/**
 * Finds the arguments and results that a configuration names: the names of the arguments of `forward`,
 * `<anything>__<index>`, or the order of the configuration; keys of dictionaries as they are.
 * @throws ServerError naming everything that fits nothing.
 */
export function resolveNames(config: ModelConfig, signature: ScriptSignature): Naming {
  const issues: ConfigIssue[] = [];
  const warnings: string[] = [];
  const tensors = configuredInputs(config);
  const inputsAreDict = signature.inputs.length === 1 && /^Dict\[/.test(signature.inputs[0]!.type);
  const inputs = inputsAreDict
    ? tensors.map(({ name }) => ({ name, argument: name, isOptional: false }))
    : argumentsOf(tensors, { config, wanted: signature.inputs, issues, warnings });
  const outputIndices = outputsOf(config, { returns: signature.returns, issues, warnings });
  if (issues.length > 0) throw configError(issues);
  return { inputsAreDict, inputs, outputIndices, warnings };
}

interface Findings {
  readonly config: ModelConfig;
  readonly wanted: readonly TorchArgument[];
  readonly issues: ConfigIssue[];
  readonly warnings: string[];
}

function argumentsOf(tensors: readonly ConfiguredTensor[], findings: Findings): NamedInput[] {
  const { config, wanted, issues } = findings;
  const refused = wanted.find(({ type, isOptional }) => !isOptional && !TENSORS.test(type));
  if (refused !== undefined) {
    issues.push({
      path: "",
      message:
        `An input of type '${refused.type}' was detected in the model. Only a single input ` +
        `of type Dict(str, Tensor) or input(s) of type Tensor are supported.`,
      code: "INTERNAL",
      hint: `argument '${refused.name}' of forward in model '${config.name}': give it a default, ` +
        `or wrap the module in one that takes a Tensor`,
    });
    return [];
  }
  const positions = positionsOf(tensors, findings);
  if (issues.length > 0) return [];
  const taken = new Map<number, ConfiguredTensor>();
  for (const [tensor, position] of positions) {
    const other = taken.get(position);
    if (other !== undefined) {
      issues.push({
        path: tensor.path,
        message: `inputs '${other.name}' and '${tensor.name}' of model '${config.name}' are both ` +
          `argument ${position} of forward`,
      });
    }
    taken.set(position, tensor);
  }
  const isMissing = wanted.some(({ isOptional }, index) => !isOptional && !taken.has(index));
  const isBeyond = [...taken.keys()].some((position) => position >= wanted.length);
  if (isMissing || isBeyond) issues.push(wrongCount(tensors, findings));
  if (issues.length > 0) return [];
  return wanted.flatMap((argument, index) => {
    const tensor = taken.get(index);
    if (tensor === undefined) return [];
    checkKind(tensor, argument, findings);
    return [{ name: tensor.name, argument: argument.name, isOptional: argument.isOptional }];
  });
}

function wrongCount(
  tensors: readonly ConfiguredTensor[],
  { config, wanted }: Findings,
): ConfigIssue {
  const names = wanted.map(({ name, isOptional }) => isOptional ? `${name} (optional)` : name);
  return {
    path: "input",
    message: `unable to load model '${config.name}', configuration expects ${tensors.length} ` +
      `inputs, model provides ${wanted.length}`,
    hint: `forward takes: ${names.join(", ") || "nothing"}; expected one of these names, or ` +
      `INPUT__0 to INPUT__${Math.max(wanted.length - 1, 0)}`,
  };
}

/** Strings go to lists of strings, all else to tensors. */
function checkKind(
  { path, name, dataType }: ConfiguredTensor,
  argument: TorchArgument,
  { config, issues }: Findings,
): void {
  const isText = dataType === DataType.TYPE_STRING;
  if (isText === /List\[str\]/.test(argument.type)) return;
  issues.push({
    path,
    message: `input '${name}' of model '${config.name}' has ${DataType[dataType]}, argument ` +
      `'${argument.name}' of forward is ${argument.type}`,
  });
}

/** By the names of arguments when all inputs have them, else by index when all have one, else in order. */
function positionsOf(
  tensors: readonly ConfiguredTensor[],
  { config, wanted, issues, warnings }: Findings,
): (readonly [ConfiguredTensor, number])[] {
  const named = (name: string) => wanted.findIndex((each) => each.name === name);
  const made = tensors.filter(({ source }) => source === "control" || source === "state");
  for (const { path, name, source } of made) {
    if (named(name) >= 0 || indexIn(name) !== undefined) continue;
    issues.push(wrongName({ path, name, source }, config));
  }
  const inputs = tensors.filter(({ source }) => source === "input");
  const byName = inputs.every(({ name }) => named(name) >= 0);
  const byIndex = !byName && inputs.every(({ name }) => indexIn(name) !== undefined);
  if (!byName && !byIndex) {
    const odd = inputs.find(({ name }) => named(name) < 0 && indexIn(name) === undefined) ??
      inputs.find(({ name }) => named(name) < 0)!;
    warnings.push(
      `input '${odd.name}' or previous input(s) are neither an input argument to the model ` +
        `'${config.name}' nor do they follow the <name>__<index> naming convention. Falling back ` +
        `to enforcing strict ordering from model configuration.`,
    );
  }
  let ordered = 0;
  return tensors.map((tensor) => {
    const { name, source } = tensor;
    const isFree = source === "input" || source === "batch";
    const index = indexIn(name);
    if (isFree && !byName && !byIndex) return [tensor, ordered++] as const;
    if (named(name) >= 0 && (byName || !isFree)) return [tensor, named(name)] as const;
    return [tensor, index ?? wanted.length] as const;
  });
}

function wrongName(
  { path, name, source }: Pick<ConfiguredTensor, "path" | "name" | "source">,
  config: ModelConfig,
): ConfigIssue {
  const message = source === "state"
    ? `PyTorch model '${config.name}' is using sequence batching with state but state '${name}' ` +
      `does not follow the <name>__<index> naming convention. `
    : `input '${name}' does not follow <name>__<index> naming convention.`;
  return source === "state" ? { path, message } : { path, message, code: "INTERNAL" };
}

/** The number behind the first `__` of a name. */
export function indexIn(name: string): number | undefined {
  const number = /^.*?__(\d+)$/.exec(name)?.[1];
  return number === undefined || name.indexOf("__") !== name.length - number.length - 2
    ? undefined
    : Number(number);
}

function outputsOf(
  config: ModelConfig,
  { returns, issues, warnings }: {
    readonly returns: string;
    readonly issues: ConfigIssue[];
    readonly warnings: string[];
  },
): Map<string, number | undefined> {
  const tensors = configuredOutputs(config);
  if (/^Dict\[/.test(returns)) return new Map(tensors.map(({ name }) => [name, undefined]));
  const states = tensors.filter(({ source }) => source === "state");
  for (const state of states) {
    if (indexIn(state.name) === undefined) issues.push(wrongName(state, config));
  }
  const outputs = tensors.filter(({ source }) => source === "output");
  const odd = outputs.find(({ name }) => indexIn(name) === undefined);
  if (odd !== undefined && (outputs.length > 1 || returnedCount(returns) !== 1)) {
    warnings.push(
      `output '${odd.name}' or previous output(s) of the model '${config.name}' do not follow the ` +
        `<name>__<index> naming convention. Falling back to enforcing strict ordering from model ` +
        `configuration.`,
    );
  }
  const count = returnedCount(returns);
  return new Map(tensors.map(({ path, name, source }, position) => {
    const index = odd === undefined || source === "state" ? indexIn(name) ?? position : position;
    if (count !== undefined && index >= count) {
      issues.push({
        path,
        message: `output '${name}' of model '${config.name}' is number ${index} of what forward ` +
          `returns, which is ${returns}: the last number is ${count - 1}`,
      });
    }
    return [name, index];
  }));
}

/** How many values a return type holds; undefined = only the run tells. */
function returnedCount(returns: string): number | undefined {
  if (/^List\[(?!str\])/.test(returns)) return undefined;
  const inner = /^Tuple\[(.*)\]$/.exec(returns)?.[1];
  if (inner === undefined) return 1;
  let depth = 0;
  let count = 1;
  for (const letter of inner) {
    if (letter === "[") depth++;
    else if (letter === "]") depth--;
    else if (letter === "," && depth === 0) count++;
  }
  return count;
}
