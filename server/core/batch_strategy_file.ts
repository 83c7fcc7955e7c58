import type { ModelSource } from "../../backends/backend.ts";
import type { ConfigIssue } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import { isInside } from "./model_repository_files.ts";

/** Parameter of a configuration that names the file of its batching strategy. */
export const BATCH_STRATEGY_PARAMETER = "TRITON_BATCH_STRATEGY_PATH";
/** Where a strategy is looked for when the configuration names none. */
export const BATCH_STRATEGY_FILE = "batching.ts";
const NATIVE_LIBRARY = "batchstrategy.so";
const MODULE = /\.(?:ts|mts|js|mjs)$/;
const ISSUE_PATH = `parameters["${BATCH_STRATEGY_PARAMETER}"]`;

/** The file of a batching strategy. */
export interface BatchStrategyFile {
  /** Real absolute path. */
  readonly path: string;
  /** How clients may see it. */
  readonly name: string;
  /** Lies in the model's folder; else in that of its backend. */
  readonly isOfModel: boolean;
}

/** What is wrong with the path that the configuration names, if it names one; empty = nothing. It is relative to the model's folder or, as in the reference, to the working directory. */
export async function batchStrategyIssues(source: ModelSource): Promise<ConfigIssue[]> {
  const given = givenPath(source);
  if (given === "") return [];
  if (source.config.schedulingChoice.case === "sequenceBatching") {
    const message =
      `${BATCH_STRATEGY_PARAMETER} cannot be specified with sequence batcher, using ` +
      `default batching strategy`;
    return [{ path: ISSUE_PATH, message }];
  }
  const found = await findGiven(given, source);
  if (found === undefined) {
    const message = `Batching library path not found: ${given}`;
    const hint = `it must be a file in the folder of model '${source.name}'`;
    return [{ path: ISSUE_PATH, message, hint, code: "NOT_FOUND" }];
  }
  if (MODULE.test(found)) return [];
  const message =
    `Batching library '${given}' cannot be used: a strategy is written in TypeScript ` +
    `here and named *.ts or *.js; native libraries are not supported`;
  return [{ path: ISSUE_PATH, message, code: "UNSUPPORTED" }];
}

/**
 * The strategy of a model version: the file that its configuration names, else `batching.ts` in the folder of the
 * version, of the model or of the backend, in this order. Undefined = none.
 * @throws ServerError when the file leads out of the model's folder.
 */
export async function findBatchStrategy(
  source: ModelSource,
  backendDirectory: string | undefined,
): Promise<BatchStrategyFile | undefined> {
  const { name, version, modelDirectory, versionDirectory, config } = source;
  const given = givenPath(source);
  if (given !== "") {
    const [issue] = await batchStrategyIssues(source);
    if (issue !== undefined) throw new ServerError(issue.code ?? "INVALID_ARG", issue.message);
    const path = (await findGiven(given, source))!;
    const folder = await Deno.realPath(modelDirectory);
    return { path, name: `${name}/${path.slice(folder.length + 1)}`, isOfModel: true };
  }
  const places = [
    { folder: versionDirectory, shown: `${name}/${version}`, isOfModel: true },
    { folder: modelDirectory, shown: name, isOfModel: true },
  ];
  if (backendDirectory !== undefined) {
    const folder = `${backendDirectory}/${config.backend}`;
    places.push({ folder, shown: config.backend, isOfModel: false });
  }
  for (const { folder, shown, isOfModel } of places) {
    const path = await realPathOf(`${folder}/${BATCH_STRATEGY_FILE}`);
    if (path === undefined) continue;
    const file = { path, name: `${shown}/${BATCH_STRATEGY_FILE}`, isOfModel };
    const root = await Deno.realPath(isOfModel ? modelDirectory : folder);
    if (isInside(path, root)) return file;
    throw new ServerError(
      "INVALID_ARG",
      `${file.name} is a link that leads out of the directory it must be in`,
    );
  }
  return undefined;
}

/** Name of a batching library of the reference, which would use it, in the model's folder; undefined = none. */
export async function findNativeLibrary(
  { name, version, modelDirectory }: ModelSource,
): Promise<string | undefined> {
  for (const path of [`${version}/${NATIVE_LIBRARY}`, NATIVE_LIBRARY]) {
    if (await realPathOf(`${modelDirectory}/${path}`) !== undefined) return `${name}/${path}`;
  }
  return undefined;
}

function givenPath({ config }: ModelSource): string {
  return config.parameters[BATCH_STRATEGY_PARAMETER]?.stringValue ?? "";
}

/** Whether there is a file anywhere else is nobody's business: the path may have come with a load request. */
async function findGiven(
  given: string,
  { modelDirectory }: ModelSource,
): Promise<string | undefined> {
  const folder = await Deno.realPath(modelDirectory).catch(() => undefined);
  if (folder === undefined) return undefined;
  const places = given.startsWith("/") ? [given] : [`${modelDirectory}/${given}`, given];
  for (const place of places) {
    const path = await realPathOf(place);
    if (path !== undefined && isInside(path, folder)) return path;
  }
  return undefined;
}

async function realPathOf(path: string): Promise<string | undefined> {
  try {
    const real = await Deno.realPath(path);
    return (await Deno.stat(real)).isFile ? real : undefined;
  } catch {
    return undefined;
  }
}
