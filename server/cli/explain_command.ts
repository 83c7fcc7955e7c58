import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { isEnsemble } from "../../proto/model_config_normalize.ts";
import { ServerError } from "../../proto/status.ts";
import { type CheckFault, faultsOfModel } from "../core/check/check_faults.ts";
import { type ConfigValue, explainConfig, type Origin } from "../core/check/config_origin.ts";
import { type CheckedModel, checkModel, type CheckParts } from "../core/check/model_check.ts";
import { checkRepositories } from "../core/check/repository_check.ts";
import { composingModels } from "../core/ensemble/composing_models.ts";
import { type ExaminedModel, openModelRepository } from "../core/model_repository.ts";
import { createCheckParts, EXIT, readCheckOptions, shownPath } from "./check_options.ts";
import { formatFaults } from "./check_report.ts";
import type { FlagSpec } from "./flag_table.ts";
import { printText } from "./print.ts";

const USAGE = `Usage: nereid explain MODEL --model-repository=PATH [--version=N] [--json] [options]

Prints the complete configuration of a model with the origin of every value: a line of a file, the model
itself, a flag, or a default. Exit code 0: done; 1: the model has faults; 2: the command line is wrong.`;

const GROUP = "Model repository";
const EXPLAIN_FLAGS: readonly FlagSpec[] = [
  {
    name: "version",
    group: GROUP,
    kind: "int",
    help: "Version to explain; the latest when not given",
  },
  { name: "json", group: GROUP, kind: "none", help: "Print one JSON document" },
];

const SILENT_LOG = { info: () => {}, warning: () => {}, error: () => {}, verbose: () => {} };
/** Version of the JSON form, as that of `check`. */
const JSON_FORMAT = 1;

/** Runs `explain`; returns the exit code. */
export async function explain(args: readonly string[]): Promise<number> {
  const position = args.findIndex((argument, index) =>
    !argument.startsWith("-") && (index === 0 || isComplete(args[index - 1]!))
  );
  const name = args[position];
  const others = args.filter((_, index) => index !== position);
  const options = readCheckOptions(others, { usage: USAGE, own: EXPLAIN_FLAGS });
  if (typeof options === "number") return options;
  if (name === undefined) {
    printText(`${USAGE.split("\n", 1)[0]}\nThe name of a model is missing\n`, "stderr");
    return EXIT.misuse;
  }
  await using parts = createCheckParts(options.all);
  const { flags } = options;
  const version = flags.given("version") ? flags.number("version") : undefined;
  try {
    const { checked, composing } = await checkWithParts(name, parts);
    if (checked.stage !== "good") return refuse(faultsOfModel(checked));
    const isJson = flags.given("json");
    const text = await explanation(checked, version, { parts, composing, isJson });
    printText(text);
    return EXIT.clean;
  } catch (reason) {
    printText(`${name}: error: ${ServerError.from(reason).message}\n`, "stderr");
    return EXIT.faults;
  }
}

interface CheckedWithParts {
  readonly checked: CheckedModel;
  /** Complete configurations of the models in the steps of an ensemble. */
  readonly composing: readonly ModelConfig[];
}

/** An ensemble is right only together with the models of its steps. */
async function checkWithParts(name: string, parts: CheckParts): Promise<CheckedWithParts> {
  const checked = await checkModel(name, parts);
  const [config] = checked.configs.values();
  if (config === undefined || !isEnsemble(config)) return { checked, composing: [] };
  const { models } = await checkRepositories(parts, (other) => checkModel(other, parts));
  const names = composingModels(config);
  return {
    checked: models.find((model) => model.name === name) ?? checked,
    composing: models.flatMap((model) =>
      names.includes(model.name) ? [...model.configs.values()] : []
    ),
  };
}

/** True for an argument that needs no value behind it. */
function isComplete(argument: string): boolean {
  return !argument.startsWith("-") || argument.includes("=") ||
    /^--?(?:json|help|disable-auto-complete-config)$/.test(argument);
}

function refuse(faults: readonly CheckFault[]): number {
  printText(formatFaults(faults), "stderr");
  return EXIT.faults;
}

async function explanation(
  checked: CheckedModel,
  wanted: number | undefined,
  { parts, composing, isJson }: {
    readonly parts: CheckParts;
    readonly composing: readonly ModelConfig[];
    readonly isJson: boolean;
  },
): Promise<string> {
  const repository = openModelRepository(parts.options, SILENT_LOG, parts.agentParts);
  const model = await repository.examine(checked.name);
  try {
    return await explainModel(model, wanted, { parts, composing, isJson });
  } finally {
    await model.hold?.settle();
  }
}

async function explainModel(
  model: ExaminedModel,
  wanted: number | undefined,
  { parts, composing, isJson }: Parameters<typeof explanation>[2],
): Promise<string> {
  const version = wanted ?? model.versions.at(-1);
  if (version === undefined || !model.versions.includes(version)) {
    throw new ServerError(
      "NOT_FOUND",
      `version ${wanted} is not served; the version policy serves ${model.versions.join(", ")}`,
    );
  }
  const values = await explainConfig(model, version, { ...parts, composing });
  return isJson ? formatJson({ model, version, values }) : formatText({ model, version, values });
}

interface Explanation {
  readonly model: ExaminedModel;
  readonly version: number;
  readonly values: readonly ConfigValue[];
}

function configPath({ own: { directory }, file }: ExaminedModel): string | undefined {
  return file === undefined ? undefined : `${directory}/${file.name}`;
}

function formatText({ model, version, values }: Explanation): string {
  const path = configPath(model);
  const head = `${model.name}, version ${version}` +
    (path === undefined ? ", without a configuration file" : `, ${shownPath(path)}`);
  const rows = values.map(({ path, value }) => `${path}: ${value}`);
  const width = Math.min(72, Math.max(...rows.map((row) => row.length)));
  const lines = rows.map((row, index) =>
    `${row.padEnd(width)}  # ${originText(values[index]!.origin, model)}`
  );
  return `${head}\n\n${lines.join("\n")}\n`;
}

function originText(origin: Origin, { file }: ExaminedModel): string {
  switch (origin.kind) {
    case "file":
      return `${file?.name}:${origin.line}:${origin.column}`;
    case "auto-complete":
      return `auto-complete, from ${origin.from}`;
    case "flag":
      return `flag ${origin.flag}`;
    case "default":
      return "default";
  }
}

function formatJson({ model, version, values }: Explanation): string {
  const document = {
    format: JSON_FORMAT,
    model: model.name,
    version,
    repository: model.repository,
    file: configPath(model) ?? null,
    values: values.map(({ path, value, origin }) => ({ path, value: rawJson(value), origin })),
  };
  return JSON.stringify(document, null, 2) + "\n";
}

/** Numbers that JavaScript cannot hold stay texts. */
function rawJson(value: string): unknown {
  const parsed: unknown = JSON.parse(value);
  return typeof parsed === "number" && !Number.isSafeInteger(parsed) && /^-?[0-9]+$/.test(value)
    ? value
    : parsed;
}
