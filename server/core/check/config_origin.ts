import { create } from "@bufbuild/protobuf";
import { type Backend, CPU_OFFER } from "../../../backends/backend.ts";
import {
  type ModelConfig,
  ModelTransactionPolicySchema,
} from "../../../proto/gen/model_config_pb.ts";
import { type ConfigPositions, formatModelConfigJson } from "../../../proto/model_config.ts";
import { isEnsemble } from "../../../proto/model_config_normalize.ts";
import { ServerError } from "../../../proto/status.ts";
import { completeModelConfig } from "../config_complete.ts";
import { isDecoupledComposition } from "../ensemble/composition_check.ts";
import type { ExaminedModel } from "../model_repository.ts";
import type { ServerOptions } from "../options.ts";
import { type CheckParts, configSource } from "./model_check.ts";

/** Where a value comes from. */
export type Origin =
  | { readonly kind: "file"; readonly line: number; readonly column: number }
  /** Taken from the model, or from names of folders and files. */
  | { readonly kind: "auto-complete"; readonly from: string }
  | { readonly kind: "default" }
  /** A flag of the command line. */
  | { readonly kind: "flag"; readonly flag: string };

/** One value of a complete configuration. */
export interface ConfigValue {
  /** Such as `input[0].dims[1]`. */
  readonly path: string;
  /** As JSON. */
  readonly value: string;
  readonly origin: Origin;
}

const FILE_NAME_FIELDS: readonly string[] = ["backend", "platform", "default_model_filename"];
const DEFAULT_BATCH_KEY = "default-max-batch-size";

/**
 * The complete configuration of one version of a model without faults, value by value, in the order of the schema.
 * `composing` = complete configurations of the models in the steps of an ensemble.
 * @throws ServerError when the configuration cannot be completed.
 */
export async function explainConfig(
  model: ExaminedModel,
  version: number,
  parts: CheckParts & { readonly composing: readonly ModelConfig[] },
): Promise<ConfigValue[]> {
  const source = configSource(model, version);
  const read = new Set(flatten(model.config).map(({ path, value }) => `${path} ${value}`));
  let completed: ReadonlySet<string> = new Set();
  if (isEnsemble(model.config)) {
    const decoupled = isDecoupledComposition(parts.composing);
    source.config.modelTransactionPolicy = create(ModelTransactionPolicySchema, { decoupled });
  } else {
    const backend = await parts.backends.open(source.config.backend);
    if (backend === undefined) {
      throw new ServerError("INVALID_ARG", `there is no backend '${source.config.backend}'`);
    }
    const watched = watchCompletion(backend, (values) => completed = values);
    await completeModelConfig(source, watched, parts.options, parts);
  }
  return flatten(source.config).map(({ path, value }) => ({
    path,
    value,
    origin: originOf(path, {
      model,
      backend: source.config.backend,
      options: parts.options,
      isCompleted: completed.has(`${path} ${value}`),
      isRead: read.has(`${path} ${value}`),
    }),
  }));
}

/** The backend, which also tells what its completion has changed. */
function watchCompletion(
  backend: Backend,
  onCompleted: (values: ReadonlySet<string>) => void,
): Backend {
  return {
    name: backend.name,
    preference: backend.preference,
    kinds: async (devices, source) => await backend.kinds?.(devices, source) ?? [CPU_OFFER],
    openModel: (source) => backend.openModel(source),
    autoComplete: async (source) => {
      const before = valuesOf(source.config);
      await backend.autoComplete(source);
      onCompleted(valuesOf(source.config).difference(before));
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

function valuesOf(config: ModelConfig): Set<string> {
  return new Set(flatten(config).map(({ path, value }) => `${path} ${value}`));
}

interface OriginContext {
  readonly model: ExaminedModel;
  readonly backend: string;
  readonly options: ServerOptions;
  /** The backend filled it in. */
  readonly isCompleted: boolean;
  /** It was so before the backend was asked. */
  readonly isRead: boolean;
}

function originOf(path: string, context: OriginContext): Origin {
  const { model, options, isCompleted, isRead } = context;
  if (isCompleted) {
    const value = options.backendConfig.get(context.backend)?.get(DEFAULT_BATCH_KEY) ??
      options.backendConfig.get("")?.get(DEFAULT_BATCH_KEY);
    if (path === "max_batch_size" && value !== undefined) {
      return { kind: "flag", flag: `--backend-config ${DEFAULT_BATCH_KEY}=${value}` };
    }
    return { kind: "auto-complete", from: "the model" };
  }
  if (isEnsemble(model.config) && path === "model_transaction_policy.decoupled") {
    return { kind: "auto-complete", from: "the models of the steps" };
  }
  const position = givenAt(path, model.positions);
  if (position !== undefined) return { kind: "file", ...position };
  if (isRead && path === "name") return { kind: "auto-complete", from: "the name of the folder" };
  if (isRead && FILE_NAME_FIELDS.includes(path) && model.config[camel(path)] !== "") {
    return { kind: "auto-complete", from: "the files of the model" };
  }
  return { kind: "default" };
}

type FileNameField = "backend" | "platform" | "defaultModelFilename";

function camel(path: string): FileNameField {
  return path === "default_model_filename" ? "defaultModelFilename" : path as FileNameField;
}

/** Where the file gives the value: the field itself, or the list that is empty there. */
function givenAt(path: string, { byPath }: ConfigPositions) {
  return byPath.get(path) ?? byPath.get(path.replace(/(\["[^"]*"\])\.string_value$/, "$1"));
}

interface FlatValue {
  readonly path: string;
  readonly value: string;
}

/** Every scalar, and every list, map and message without members, with its path. */
function flatten(config: ModelConfig): FlatValue[] {
  const values: FlatValue[] = [];
  // Numbers of 64 bits keep the digits that JSON.parse would round.
  const root: unknown = JSON.parse(formatModelConfigJson(config), keepDigits);
  const visit = (path: string, value: unknown): void => {
    if (typeof value !== "object" || value === null || value instanceof Digits) {
      const text = value instanceof Digits ? value.text : JSON.stringify(value);
      values.push({ path, value: text });
      return;
    }
    const members = Array.isArray(value)
      ? value.map((element, index) => [`${path}[${index}]`, element] as const)
      : Object.entries(value).map(([key, element]) => [memberPath(path, key), element] as const);
    if (members.length === 0) values.push({ path, value: Array.isArray(value) ? "[]" : "{}" });
    for (const [memberName, element] of members) visit(memberName, element);
  };
  visit("", root);
  return values;
}

const MAP_FIELD =
  /(?:^|\.)(?:parameters|metric_tags|cc_model_filenames|priority_queue_policy|input_map|output_map|inputs)$/;

function memberPath(path: string, key: string): string {
  if (path === "") return key;
  if (!MAP_FIELD.test(path)) return `${path}.${key}`;
  const isNumber = path.endsWith("priority_queue_policy");
  return `${path}[${isNumber ? key : JSON.stringify(key)}]`;
}

class Digits {
  constructor(readonly text: string) {}
}

function keepDigits(_key: string, value: unknown, context?: { source?: string }): unknown {
  return typeof value === "number" && context?.source !== undefined
    ? new Digits(context.source)
    : value;
}
