import { clone } from "@bufbuild/protobuf";
import type { Devices } from "../../../backends/backend.ts";
import { type ModelConfig, ModelConfigSchema } from "../../../proto/gen/model_config_pb.ts";
import {
  checkModelIo,
  configFaults,
  type ConfigIssue,
  type ConfigPositions,
  withoutConsequences,
} from "../../../proto/model_config.ts";
import { isEnsemble } from "../../../proto/model_config_normalize.ts";
import type { BackendTable } from "../backend_table.ts";
import type { AgentParts } from "../config_agents.ts";
import {
  completeModelConfig,
  type ConfigSource,
  openModel,
  unknownBackendError,
} from "../config_complete.ts";
import { readLabels } from "../config_labels.ts";
import type { Log } from "../log.ts";
import type { ConfigFile } from "../model_repository_config.ts";
import { readDirectory } from "../model_repository_files.ts";
import { type ExaminedModel, openModelRepository } from "../model_repository.ts";
import type { ServerOptions } from "../options.ts";
import { createStateRules } from "../scheduler/sequence_state.ts";
import { createTensorRules } from "../tensor_rules.ts";
import { readWarmupSamples } from "../warmup_sample.ts";
import { adviseOnConfig } from "./config_advice.ts";
import { adviseOnFiles } from "./file_advice.ts";
import { describeModel } from "./model_description.ts";
import { mendTensors } from "./tensor_mends.ts";

/** What a check works with. */
export interface CheckParts {
  readonly options: ServerOptions;
  readonly backends: BackendTable;
  readonly backendNames: readonly string[];
  /** What reading models works with beside the files; absent = only what is built in. */
  readonly agentParts?: AgentParts;
  /** The devices of the machine; absent = nothing is known of any but the CPU. */
  readonly devices?: Devices;
}

/** How far a model got: each stage needs the one before. */
export type CheckStage = "unreadable" | "configuration" | "model" | "good";

/** A model and all that is wrong with it. */
export interface CheckedModel {
  readonly name: string;
  /** Absolute paths. */
  readonly repository: string;
  readonly directory: string;
  /** An agent made another folder of it; its faults are those of that folder, and cannot be mended in this one. */
  readonly isRewritten: boolean;
  readonly stage: CheckStage;
  readonly file: ConfigFile | undefined;
  readonly positions: ConfigPositions;
  readonly issues: readonly ConfigIssue[];
  /** What the server would only warn of. */
  readonly warnings: readonly string[];
  /** The complete configuration of each version without faults. */
  readonly configs: ReadonlyMap<number, ModelConfig>;
}

/**
 * Reads a model as the server does when it loads it, and opens it, but runs nothing. With `configText` as if that
 * stood in its configuration file.
 * @throws ServerError when its folder cannot be read.
 */
export async function checkModel(
  name: string,
  parts: CheckParts,
  configText?: string,
): Promise<CheckedModel> {
  const warnings: string[] = [];
  const repository = openModelRepository(parts.options, warningLog(warnings), parts.agentParts);
  const model = await repository.examine(name, { configText });
  try {
    return await checkExamined(model, parts, warnings);
  } finally {
    await model.hold?.settle();
  }
}

async function checkExamined(
  model: ExaminedModel,
  parts: CheckParts,
  warnings: readonly string[],
): Promise<CheckedModel> {
  const { name } = model;
  const place = {
    name,
    repository: model.own.root,
    directory: model.own.directory,
    isRewritten: model.own.directory !== model.directory,
    file: model.file,
    positions: model.positions,
    warnings,
  };
  if (model.isUnreadable) {
    return { ...place, stage: "unreadable", issues: model.issues, configs: new Map() };
  }
  const versionEntries = await firstVersionEntries(model);
  const advise = async (issues: readonly ConfigIssue[]) => {
    const { config } = model;
    const advised = adviseOnConfig(issues, { ...parts, config, versionEntries });
    return await adviseOnFiles(advised, { config, directory: model.directory });
  };
  const opened = await openVersions(model, parts);
  const issues = await advise([
    ...model.issues,
    ...withoutConsequences(opened.issues, model.issues),
  ]);
  const stage = model.issues.length > 0
    ? "configuration"
    : opened.issues.length > 0
    ? "model"
    : "good";
  return { ...place, stage, issues, configs: opened.configs };
}

interface OpenedVersions {
  readonly issues: ConfigIssue[];
  readonly configs: Map<number, ModelConfig>;
}

/** Completes and opens every version; faults that versions share are told once. */
async function openVersions(model: ExaminedModel, parts: CheckParts): Promise<OpenedVersions> {
  const issues: ConfigIssue[] = [];
  const configs = new Map<number, ModelConfig>();
  for (const version of model.versions) {
    const source = configSource(model, version);
    const found = isEnsemble(model.config)
      ? await ensembleIssues(source)
      : await versionIssues(source, parts);
    if (found.length === 0) configs.set(version, source.config);
    for (const issue of found) {
      const isKnown = issues.some(({ path, message }) =>
        path === issue.path && message === issue.message
      );
      if (!isKnown) issues.push(issue);
    }
  }
  return { issues, configs };
}

/** What a version is completed from, with a configuration of its own. */
export function configSource(model: ExaminedModel, version: number): ConfigSource {
  return {
    name: model.name,
    version,
    modelDirectory: model.directory,
    versionDirectory: `${model.directory}/${version}`,
    config: clone(ModelConfigSchema, model.config),
    positions: model.positions,
  };
}

async function ensembleIssues(source: ConfigSource): Promise<ConfigIssue[]> {
  const { issues } = await readLabels(source.config, source);
  return [...checkModelIo(source.config), ...issues];
}

async function versionIssues(source: ConfigSource, parts: CheckParts): Promise<ConfigIssue[]> {
  const issues: ConfigIssue[] = [];
  const written = clone(ModelConfigSchema, source.config);
  try {
    const backend = await parts.backends.open(source.config.backend);
    if (backend === undefined) {
      throw unknownBackendError(source.config, parts.backendNames, source.positions);
    }
    issues.push(
      ...await issuesOf(() => completeModelConfig(source, backend, parts.options, parts)),
    );
    // What the model's file says beyond that: everything comes out in one go.
    if (!issues.some(({ path }) => path === "" || path === "max_batch_size")) {
      const more = await issuesOf(async () => {
        await using _model = await openModel(source, backend);
        const stateRules = await createStateRules(source.config, source.modelDirectory);
        const rules = createTensorRules(source.config);
        await readWarmupSamples({ ...source, rules, stateRules });
      });
      issues.push(...withoutConsequences(more, issues));
    }
    if (!issues.some(({ path }) => /^(?:input|output)/.test(path))) return issues;
    const description = await describeModel({ ...source, config: written }, backend);
    return description === undefined ? issues : mendTensors(issues, written, description);
  } catch (reason) {
    return [...issues, ...configFaults(reason).issues];
  }
}

async function issuesOf(operation: () => Promise<unknown>): Promise<readonly ConfigIssue[]> {
  try {
    await operation();
    return [];
  } catch (reason) {
    return configFaults(reason).issues;
  }
}

async function firstVersionEntries({ directory, versions }: ExaminedModel): Promise<string[]> {
  const folder = versions.map(String).sort()[0];
  if (folder === undefined) return [];
  const entries = await readDirectory(`${directory}/${folder}`).catch(() => []);
  return entries.map(({ name }) => name);
}

function warningLog(warnings: string[]): Log {
  const ignore = (): void => {};
  return {
    info: ignore,
    verbose: ignore,
    error: ignore,
    warning: (message) => void warnings.push(message),
  };
}
