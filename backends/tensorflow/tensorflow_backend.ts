import { basename } from "node:path";
import { ServerError } from "../../proto/status.ts";
import { createCallGate } from "../../ffi/call_gate.ts";
import { LibraryNotFoundError } from "../../ffi/library.ts";
import { TfRuntime } from "../../ffi/tensorflow/mod.ts";
import type {
  Backend,
  BackendContext,
  BackendModel,
  BackendSettings,
  ModelSource,
} from "../backend.ts";
import { findModelPath, TENSORFLOW_PLACE } from "../model_path.ts";
import { completeConfig, isComplete } from "../onnx_auto_complete.ts";
import { createRunPlan } from "../onnx_run_plan.ts";
import { integerSetting } from "../onnx_setting_values.ts";
import { checkSignature } from "../onnx_signature_check.ts";
import { tensorFlowError, TensorFlowModel } from "./model.ts";
import { openBoundSession, readModelSignature, type SessionSource } from "./session_source.ts";
import { readTensorFlowSettings } from "./settings.ts";

/** Runs in flight: half of the runtime's blocking pool, which also serves files and name lookups. */
const MAX_RUNS_IN_FLIGHT = 16;
const MAX_LOADS_IN_FLIGHT = 4;
const LIBRARY_KEY = "library";

/**
 * Why models cannot run on TensorFlow's own library here; undefined when they can, or must, because a `library` is
 * named. One of OpenVINO asks for OpenVINO.
 */
export async function findTensorFlowRefusal(
  settings: BackendSettings,
): Promise<string | undefined> {
  const library = settings.get(LIBRARY_KEY) ?? "";
  if (/openvino/i.test(library)) {
    return `--backend-config=tensorflow,library=${library} asks for it`;
  }
  if (library !== "") return undefined;
  try {
    await TfRuntime.open(undefined);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** SavedModels and frozen graphs through TensorFlow's C API. */
export class TensorFlowBackend implements Backend {
  readonly name = TENSORFLOW_PLACE.backend;
  readonly preference = { kind: "KIND_CPU", count: TENSORFLOW_PLACE.instanceCount } as const;
  readonly #context: BackendContext;
  readonly #runGate = createCallGate(MAX_RUNS_IN_FLIGHT);
  readonly #loadGate = createCallGate(MAX_LOADS_IN_FLIGHT);
  #opening: Promise<TfRuntime> | undefined;

  constructor(context: BackendContext) {
    this.#context = context;
  }

  async autoComplete(source: ModelSource): Promise<void> {
    const { config, name: modelName } = source;
    if (isComplete(config)) return;
    const defaultMaxBatchSize = integerSetting(this.#context.settings, "default-max-batch-size");
    const { signature } = await this.#readSignature(await this.#locate(source));
    completeConfig(config, signature, { modelName, defaultMaxBatchSize });
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    const { now, countBatchRetry, log } = this.#context;
    const origin = await this.#locate(source);
    const runtime = await this.#openRuntime();
    for (const path of origin.settings.operatorLibraries) {
      await addOperators(runtime, path, source.name);
    }
    const known = await this.#readSignature(origin);
    checkSignature(source, known.signature);
    if (known.warning !== undefined) log.warning(known.warning);
    const openSession = () => this.#gated(() => openBoundSession(runtime, origin, known));
    const first = await openSession();
    return new TensorFlowModel({
      name: source.name,
      plan: createRunPlan(source.config, known.signature),
      openSession,
      sessionShareCount: origin.settings.sessionShareCount,
      gate: this.#runGate,
      now,
      countBatchRetry: () => countBatchRetry(source.name, source.version),
    }, first);
  }

  async #locate(source: ModelSource): Promise<SessionSource> {
    const path = await findModelPath(source, TENSORFLOW_PLACE);
    return { source, path, settings: readTensorFlowSettings(source, this.#context.settings) };
  }

  #readSignature(origin: SessionSource) {
    return this.#gated(() => readModelSignature(origin, () => this.#openRuntime()));
  }

  async #gated<Value>(work: () => Promise<Value>): Promise<Value> {
    const turn = this.#loadGate.enter();
    if (turn !== undefined) await turn;
    try {
      return await work();
    } finally {
      this.#loadGate.leave();
    }
  }

  /** Opened with the first model, so that a missing library concerns only models that need it. */
  #openRuntime(): Promise<TfRuntime> {
    this.#opening ??= this.#start().catch((error) => {
      // What was missing may be there for the next model.
      this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  async #start(): Promise<TfRuntime> {
    const { settings, log } = this.#context;
    try {
      const runtime = await TfRuntime.open(settings.get(LIBRARY_KEY));
      log.info(`TensorFlow ${runtime.version} from ${runtime.path}`);
      return runtime;
    } catch (error) {
      if (!(error instanceof LibraryNotFoundError)) throw ServerError.from(error, "UNAVAILABLE");
      throw new ServerError(
        "UNAVAILABLE",
        `${error.message}. 'pip install tensorflow-cpu' brings it, and 'pip install openvino' a ` +
          `library 14 times smaller that runs most models, too; --backend-config=${this.name},` +
          `library=PATH names the file or the unpacked package`,
        { cause: error },
      );
    }
  }

  /** The library stays: it is one per process, and finalizers may still free values in it. */
  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

async function addOperators(runtime: TfRuntime, path: string, modelName: string): Promise<void> {
  try {
    await runtime.addOperators(path);
  } catch (error) {
    const stage = `loading '${basename(path)}' (op_library_filename) of model '${modelName}'`;
    throw tensorFlowError(error, stage);
  }
}
