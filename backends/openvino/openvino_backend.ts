import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { createCallGate } from "../../ffi/call_gate.ts";
import { LibraryNotFoundError } from "../../ffi/library.ts";
import { OvCompiledModel, OvError, OvRuntime, OvStageError } from "../../ffi/openvino/mod.ts";
import type {
  Backend,
  BackendContext,
  BackendModel,
  BackendSettings,
  InstancePreference,
  ModelSource,
} from "../backend.ts";
import { completeConfig, isComplete } from "../onnx_auto_complete.ts";
import { createRunPlan } from "../onnx_run_plan.ts";
import { integerSetting } from "../onnx_setting_values.ts";
import { checkSignature } from "../onnx_signature_check.ts";
import { type CompileSettings, readCompileSettings } from "./compile_settings.ts";
import { openVinoError, OpenVinoModel } from "./model.ts";
import { type FilePlace, findModelPath, OPENVINO_PLACE } from "../model_path.ts";
import { namePorts, toSignature } from "./signature.ts";

/** Runs in flight: half of the runtime's blocking pool, which also serves files and name lookups. */
const MAX_RUNS_IN_FLIGHT = 16;
/** The library keeps one text of its last failure: loads that fail side by side would be told each other's. */
const MAX_LOADS_IN_FLIGHT = 1;
/** A model compiled for completion waits this long for the load that follows. */
const PREPARED_MODEL_TTL_MS = 30_000;

/** Whether models can run on OpenVINO here; one whose library is named must. */
export function isOpenVinoThere(settings: BackendSettings): boolean {
  if ((settings.get("library") ?? "") !== "") return true;
  try {
    OvRuntime.open(undefined);
    return true;
  } catch {
    return false;
  }
}

/** OpenVINO IR, ONNX, SavedModel and TensorFlow Lite models through OpenVINO's C API. */
export class OpenVinoBackend implements Backend {
  readonly name: string;
  readonly preference: InstancePreference;
  readonly #place: FilePlace;
  readonly #context: BackendContext;
  readonly #runGate = createCallGate(MAX_RUNS_IN_FLIGHT);
  readonly #loadGate = createCallGate(MAX_LOADS_IN_FLIGHT);
  readonly #prepared = new Map<ModelConfig, PreparedModel>();
  readonly #extensions = new Set<string>();
  #runtime: OvRuntime | undefined;

  /** @param place where models have their file, when the backend has another name than OpenVINO's own. */
  constructor(context: BackendContext, place: FilePlace = OPENVINO_PLACE) {
    this.#context = context;
    this.#place = place;
    this.name = place.backend;
    this.preference = { kind: "KIND_CPU", count: place.instanceCount };
  }

  async autoComplete(source: ModelSource): Promise<void> {
    const { config, name: modelName } = source;
    if (isComplete(config)) return;
    const defaultMaxBatchSize = integerSetting(this.#context.settings, "default-max-batch-size");
    const path = await findModelPath(source, this.#place);
    const settings = readCompileSettings(source, this.#context.settings);
    const compiled = await this.#compile(source, { path, settings });
    try {
      const signature = toSignature(namePorts(compiled, path), modelName);
      completeConfig(config, signature, { modelName, defaultMaxBatchSize });
    } catch (error) {
      compiled[Symbol.dispose]();
      throw error;
    }
    this.#keep(config, { key: keyOf(path, settings), compiled });
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    const { now, countBatchRetry } = this.#context;
    const path = await findModelPath(source, this.#place);
    const settings = readCompileSettings(source, this.#context.settings);
    const compiled = this.#takePrepared(source.config, keyOf(path, settings)) ??
      await this.#compile(source, { path, settings });
    try {
      const ports = namePorts(compiled, path);
      const signature = toSignature(ports, source.name);
      checkSignature(source, signature);
      return new OpenVinoModel({
        name: source.name,
        compiled,
        ports,
        plan: createRunPlan(source.config, signature),
        gate: this.#runGate,
        now,
        countBatchRetry: () => countBatchRetry(source.name, source.version),
      });
    } catch (error) {
      compiled[Symbol.dispose]();
      throw error;
    }
  }

  async #compile(
    source: ModelSource,
    { path, settings }: { readonly path: string; readonly settings: CompileSettings },
  ): Promise<OvCompiledModel> {
    const runtime = this.#openRuntime();
    const { device, properties, extensionPath } = settings;
    const turn = this.#loadGate.enter();
    if (turn !== undefined) await turn;
    try {
      await this.#addExtension(runtime, extensionPath);
      return await OvCompiledModel.open(runtime, path, { device, properties });
    } catch (error) {
      const stage = error instanceof OvStageError ? error.stage : "loading";
      const { code, message } = openVinoError(error, `${stage} of '${source.name}'`);
      const hint = error instanceof OvError ? await deviceHint(runtime, device) : "";
      throw new ServerError(code, message + hint, { cause: error });
    } finally {
      this.#loadGate.leave();
    }
  }

  async #addExtension(runtime: OvRuntime, path: string | undefined): Promise<void> {
    if (path === undefined || this.#extensions.has(path)) return;
    await runtime.addExtension(path);
    this.#extensions.add(path);
  }

  /** Opened with the first model, so that a missing library concerns only models that need it. */
  #openRuntime(): OvRuntime {
    if (this.#runtime !== undefined) return this.#runtime;
    const { settings, log } = this.#context;
    try {
      const runtime = OvRuntime.open(settings.get("library"));
      log.info(`OpenVINO ${runtime.version} from ${runtime.path}`);
      return this.#runtime = runtime;
    } catch (error) {
      if (error instanceof LibraryNotFoundError) {
        throw new ServerError(
          "UNAVAILABLE",
          `${error.message}. 'pip install openvino' brings it; ` +
            `--backend-config=${this.name},library=PATH names the file or the unpacked package`,
          { cause: error },
        );
      }
      if (error instanceof OvError) throw openVinoError(error, "starting the runtime");
      throw ServerError.from(error, "UNAVAILABLE");
    }
  }

  /** Keeps the model for the `openModel` that usually follows, so that it is not compiled twice. */
  #keep(config: ModelConfig, { key, compiled }: Pick<PreparedModel, "key" | "compiled">): void {
    this.#drop(config);
    const timer = setTimeout(() => this.#drop(config), PREPARED_MODEL_TTL_MS);
    Deno.unrefTimer(timer);
    this.#prepared.set(config, { key, compiled, timer });
  }

  #takePrepared(config: ModelConfig, key: string): OvCompiledModel | undefined {
    const prepared = this.#prepared.get(config);
    if (prepared === undefined) return undefined;
    this.#prepared.delete(config);
    clearTimeout(prepared.timer);
    if (prepared.key === key) return prepared.compiled;
    prepared.compiled[Symbol.dispose]();
    return undefined;
  }

  #drop(config: ModelConfig): void {
    const prepared = this.#prepared.get(config);
    if (prepared === undefined) return;
    this.#prepared.delete(config);
    clearTimeout(prepared.timer);
    prepared.compiled[Symbol.dispose]();
  }

  /** The runtime stays: it is one per process, and finalizers may still free values in it. */
  [Symbol.asyncDispose](): Promise<void> {
    for (const config of [...this.#prepared.keys()]) this.#drop(config);
    return Promise.resolve();
  }
}

interface PreparedModel {
  /** What it was compiled from, and with. */
  readonly key: string;
  readonly compiled: OvCompiledModel;
  readonly timer: ReturnType<typeof setTimeout>;
}

function keyOf(path: string, settings: CompileSettings): string {
  return JSON.stringify([path, settings.device, [...settings.properties]]);
}

/** The devices there are, for whoever asked for another one; "" where that is not what is wrong. */
async function deviceHint(runtime: OvRuntime, device: string): Promise<string> {
  if (device === "CPU") return "";
  try {
    const devices = await runtime.devices();
    return devices.includes(device)
      ? ""
      : `; TARGET_DEVICE is '${device}', devices of this machine: ${devices.join(", ")}`;
  } catch {
    return "";
  }
}
