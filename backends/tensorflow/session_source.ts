import { join } from "node:path";
import { ServerError } from "../../proto/status.ts";
import type { SessionSignature } from "../../ffi/onnxruntime/signature.ts";
import {
  TfError,
  TfGraph,
  type TfPort,
  type TfRuntime,
  TfSession,
} from "../../ffi/tensorflow/mod.ts";
import type { ModelSource } from "../backend.ts";
import { chooseSignature } from "./choose_signature.ts";
import { signatureOfGraph } from "./graph_signature.ts";
import { readInitOps } from "./init_ops.ts";
import { type BoundSession, tensorFlowError } from "./model.ts";
import { type GraphSignature, type MetaGraph, readSavedModel } from "./saved_model.ts";
import type { TensorFlowSettings } from "./settings.ts";
import { toSessionSignature } from "./signature.ts";

const GRAPH_FILE = /\.(?:graphdef|pb)$/;
const VARIABLE_TYPES = new Set(["VarHandleOp", "VariableV2", "Variable"]);

type Tensors = Pick<GraphSignature, "inputs" | "outputs">;

/** A file or folder that sessions are opened from. */
export interface SessionSource {
  readonly source: ModelSource;
  /** `<folder>/saved_model.pb` is a SavedModel, a file a frozen graph. */
  readonly path: string;
  readonly settings: TensorFlowSettings;
}

/** A signature with what told it. */
export interface KnownSignature {
  readonly signature: SessionSignature;
  readonly tensors: Tensors;
  /** The graph of a SavedModel; undefined for a frozen graph. */
  readonly graph: MetaGraph | undefined;
  /** Something that the log should tell. */
  readonly warning: string | undefined;
}

/**
 * Reads what a model takes and gives. The library is opened for a frozen graph only.
 * @throws ServerError naming what is wrong with the file.
 */
export async function readModelSignature(
  { source, path, settings }: SessionSource,
  openRuntime: () => Promise<TfRuntime>,
): Promise<KnownSignature> {
  const { name, config } = source;
  if (GRAPH_FILE.test(path)) {
    using graph = await readGraph(await openRuntime(), path, name);
    const tensors = signatureOfGraph(graph, config);
    const signature = toSessionSignature(tensors, name);
    return { signature, tensors, graph: undefined, warning: undefined };
  }
  const graphs = await readSavedModel(path, name);
  const { graph, signature: tensors, isGuess } = chooseSignature(graphs, settings.wish, name);
  const warning = isGuess
    ? `model '${name}' has no signature 'serving_default', using its only one, '${tensors.name}'`
    : undefined;
  return { signature: toSessionSignature(tensors, name), tensors, graph, warning };
}

/** Opens a session and finds the tensors of the signature in its graph. @throws ServerError */
export async function openBoundSession(
  runtime: TfRuntime,
  origin: SessionSource,
  known: KnownSignature,
): Promise<BoundSession> {
  const { source, settings } = origin;
  const initOps = await readInitOps(source, settings.initOpsFile);
  const session = await openSession(runtime, origin, known);
  try {
    if (initOps.length > 0) await runInitOps(session, initOps, settings.initOpsFile);
    const { inputs, outputs } = known.tensors;
    const find = (kind: string, list: Tensors["inputs"]) =>
      new Map(list.map(({ name, tensorName }): [string, TfPort] => {
        const port = session.graph.port(tensorName);
        if (port !== undefined) return [name, port];
        throw new ServerError(
          "INVALID_ARG",
          `unable to load model '${source.name}', ${kind} '${name}' of its signature is tensor ` +
            `'${tensorName}', which the graph has not`,
        );
      }));
    return {
      session,
      inputs: find("input", inputs),
      outputs: find("output", outputs),
      [Symbol.asyncDispose]: () => session[Symbol.asyncDispose](),
    };
  } catch (error) {
    await session[Symbol.asyncDispose]();
    throw tensorFlowError(error, `initializing model '${source.name}'`);
  }
}

async function openSession(
  runtime: TfRuntime,
  { source, path, settings }: SessionSource,
  { graph }: KnownSignature,
): Promise<TfSession> {
  const { name } = source;
  try {
    if (graph === undefined) {
      return await TfSession.overGraph(
        runtime,
        await readGraph(runtime, path, name),
        settings.config,
      );
    }
    const { tags } = graph;
    const session = await TfSession.openSavedModel(runtime, path, {
      tags,
      config: settings.config,
    });
    if (graph.restores) await checkVariables(session, path, name);
    return session;
  } catch (error) {
    throw loadError(error, { runtime, path, name });
  }
}

/** Without the file the library loads all the same, and every run fails. */
async function checkVariables(session: TfSession, path: string, name: string): Promise<void> {
  const index = join(path, "variables", "variables.index");
  if (await isThere(index)) return;
  const variable = session.graph.operations().find(({ type }) => VARIABLE_TYPES.has(type));
  if (variable === undefined) return;
  await session[Symbol.asyncDispose]();
  throw new ServerError(
    "UNAVAILABLE",
    `unable to load model '${name}': it has variables, such as '${variable.name}', but there is no ` +
      `'${index}'; a SavedModel is a whole folder: saved_model.pb, variables/ and assets/`,
  );
}

async function runInitOps(session: TfSession, names: readonly string[], file: string) {
  const targets = names.map((name) => {
    const operation = session.graph.operation(name);
    if (operation !== undefined) return operation;
    throw new ServerError("INVALID_ARG", `'${file}' lists '${name}', which the graph has not`);
  });
  await session.run([], [], targets);
}

async function readGraph(runtime: TfRuntime, path: string, name: string): Promise<TfGraph> {
  try {
    return await TfGraph.read(runtime, await Deno.readFile(path));
  } catch (error) {
    throw loadError(error, { runtime, path, name });
  }
}

function loadError(
  error: unknown,
  { runtime, path, name }: {
    readonly runtime: TfRuntime;
    readonly path: string;
    readonly name: string;
  },
): ServerError {
  const { code, message } = tensorFlowError(error, `loading model '${name}' from '${path}'`);
  const hint = error instanceof TfError ? hintOf(error.message, runtime.version) : "";
  return new ServerError(code, message + hint, { cause: error });
}

function hintOf(text: string, version: string): string {
  const operator = /Op type not registered '([^']+)'/.exec(text)?.[1];
  if (operator !== undefined) {
    return `; TensorFlow ${version} has no operator '${operator}': model_operations ` +
      `{ op_library_filename: "…" } names a library in the model's folder that brings it`;
  }
  if (/Invalid GraphDef|Cannot parse|parse/i.test(text)) {
    return "; the file is cut off, or no graph of TensorFlow";
  }
  if (/variables|checkpoint|restore|DATA_LOSS|OUT_OF_RANGE/i.test(text)) {
    return "; the folder 'variables' of the SavedModel is not whole: copy or export it again";
  }
  return "";
}

async function isThere(path: string): Promise<boolean> {
  try {
    await Deno.stat(path);
    return true;
  } catch {
    return false;
  }
}
