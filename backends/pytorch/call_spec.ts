import { DataType, type ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { configError, type ConfigIssue } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import type { PackageSignature } from "../../ffi/pytorch/mod.ts";
import { configuredInputs, configuredOutputs } from "./configured_io.ts";
import type { Naming } from "./naming.ts";

const MAX_DEPTH = 32;

interface SpecNode {
  readonly type: string | null;
  readonly context: string | null;
  readonly "children_spec": readonly SpecNode[];
}

/**
 * Names of the tensors that a call specification of an AOTInductor package holds, in its order: `ARGS[0]`,
 * `ARGS[2][key]` and `KWARGS[name]` of inputs, `RESULT`, `RESULT[1]`, `RESULT[key][0]` of outputs.
 * @throws Error when it holds something else than tuples, lists and dictionaries.
 */
export function callSpecNames(spec: string, kind: "input" | "output"): string[] {
  const root = (JSON.parse(spec) as [number, SpecNode])[1];
  if (kind === "output") return leavesOf(root, "RESULT", 0);
  const [positional, named] = root["children_spec"];
  if (root.type !== "builtins.tuple" || positional === undefined || named === undefined) {
    throw new Error(`expected arguments and keyword arguments, got ${root.type}`);
  }
  return [...leavesOf(positional, "ARGS", 0), ...leavesOf(named, "KWARGS", 0)];
}

function leavesOf(node: SpecNode, name: string, depth: number): string[] {
  if (depth > MAX_DEPTH) throw new Error(`'${name}' is nested too deep`);
  if (node.type === null) return [name];
  const keys = /^(?:builtins\.dict|collections\.OrderedDict)$/.test(node.type)
    ? JSON.parse(node.context ?? "[]") as unknown[]
    : /^builtins\.(?:tuple|list)$/.test(node.type)
    ? node["children_spec"].map((_, index) => index)
    : undefined;
  if (keys === undefined) throw new Error(`'${name}' is ${node.type}`);
  return node["children_spec"].flatMap((child, index) =>
    leavesOf(child, `${name}[${keys[index]}]`, depth + 1)
  );
}

/**
 * Finds the tensors of a package that a configuration names: `INPUT__<index>` and `OUTPUT__<index>` in the order of
 * its call specification, or by the names of {@linkcode callSpecNames}.
 * @throws ServerError naming every input and output that fits nothing.
 */
export function resolvePackageNames(config: ModelConfig, signature: PackageSignature): Naming {
  const inputNames = readSpec(config, signature.inputSpec, "input");
  const outputNames = readSpec(config, signature.outputSpec, "output");
  const issues: ConfigIssue[] = [];
  const taken = new Map<number, string>();
  for (const { path, name, dataType } of configuredInputs(config)) {
    const index = find(name, "INPUT", inputNames);
    if (dataType === DataType.TYPE_STRING) issues.push(noStrings(path, name, config));
    if (index === undefined) issues.push(unknown(path, { name, kind: "input" }, inputNames));
    else if (taken.has(index)) {
      issues.push({
        path,
        message: `inputs '${taken.get(index)}' and '${name}' of model '${config.name}' are both ` +
          `${inputNames[index]}`,
      });
    } else taken.set(index, name);
  }
  if (issues.length === 0 && taken.size !== inputNames.length) {
    issues.push({
      path: "input",
      message:
        `unable to load model '${config.name}', configuration expects ${taken.size} inputs, ` +
        `model provides ${inputNames.length}`,
      hint: `the package takes: ${inputNames.join(", ")}`,
    });
  }
  const outputIndices = new Map<string, number>();
  for (const { path, name, dataType } of configuredOutputs(config)) {
    const index = find(name, "OUTPUT", outputNames);
    if (dataType === DataType.TYPE_STRING) issues.push(noStrings(path, name, config));
    if (index === undefined) issues.push(unknown(path, { name, kind: "output" }, outputNames));
    else outputIndices.set(name, index);
  }
  if (issues.length > 0) throw configError(issues);
  const inputs = inputNames.map((argument, index) => ({
    name: taken.get(index)!,
    argument,
    isOptional: false,
  }));
  return { inputsAreDict: false, inputs, outputIndices, warnings: [] };
}

function readSpec(config: ModelConfig, spec: string, kind: "input" | "output"): string[] {
  try {
    return callSpecNames(spec, kind);
  } catch (error) {
    throw new ServerError(
      "UNSUPPORTED",
      `failed to load model '${config.name}': the package's ${kind}s must be tensors in tuples, ` +
        `lists and dictionaries: ${error instanceof Error ? error.message : error}`,
    );
  }
}

function find(name: string, prefix: string, names: readonly string[]): number | undefined {
  const number = new RegExp(`^${prefix}__(\\d+)$`).exec(name)?.[1];
  const index = number === undefined ? names.indexOf(name) : Number(number);
  return index >= 0 && index < names.length ? index : undefined;
}

function unknown(
  path: string,
  { name, kind }: { readonly name: string; readonly kind: "input" | "output" },
  names: readonly string[],
): ConfigIssue {
  const numbered = names.map((each, index) => `${each} (${kind.toUpperCase()}__${index})`);
  return {
    path,
    message: `unexpected inference ${kind} '${name}', allowed ${kind}s are: ${numbered.join(", ")}`,
  };
}

function noStrings(path: string, name: string, config: ModelConfig): ConfigIssue {
  return {
    path,
    message: `'${name}' of model '${config.name}' has TYPE_STRING: AOTInductor packages have ` +
      `tensors only`,
  };
}
