import { basename } from "node:path";
import { formatModelConfigJson } from "../../proto/model_config_json.ts";
import type {
  Backend,
  BackendContext,
  BackendModel,
  Devices,
  KindOffer,
  ModelSource,
} from "../backend.ts";
import { CPU_OFFER, offerGpus } from "../device_list.ts";
import { applyCompletion } from "./auto_complete.ts";
import { EnvironmentStore } from "./environment_store.ts";
import { chooseInterpreter } from "./interpreter.ts";
import { PythonModel, type PythonModelParts, startSession } from "./model.ts";
import { findPythonFile, hasCompiledStub } from "./model_file.ts";
import { checkModelParameters } from "./model_parameters.ts";
import { type PythonSettings, readPythonSettings } from "./python_settings.ts";
import { RuntimeFolder } from "./runtime_folder.ts";

/** What makes a backend out of a Python file that all its models share. */
export interface PythonBackendOptions {
  /** Name of the backend. */
  readonly name: string;
  /** Absolute path of its `model.py`. */
  readonly modelFile: string;
}

/** Models in Python: users' `model.py` files, in one process per instance. */
export class PythonBackend implements Backend {
  readonly name: string;
  readonly runtime: string | undefined;
  readonly preference = { kind: "KIND_CPU", count: 1 } as const;
  readonly #context: BackendContext;
  readonly #settings: PythonSettings;
  readonly #modelFile: string | undefined;
  #folder: Promise<RuntimeFolder> | undefined;
  #environments: EnvironmentStore | undefined;

  /** @throws ServerError INVALID_ARG for settings that cannot be. */
  constructor(context: BackendContext, options?: PythonBackendOptions) {
    this.#context = context;
    this.name = options?.name ?? "python";
    this.#modelFile = options?.modelFile;
    this.runtime = options === undefined ? undefined : basename(options.modelFile);
    this.#settings = readPythonSettings(context.settings);
  }

  /** What runs on a device is the model's own affair: it is told which one its instance has. */
  async kinds(devices: Devices): Promise<readonly KindOffer[]> {
    return [offerGpus(await devices.gpus()), CPU_OFFER];
  }

  async autoComplete(source: ModelSource): Promise<void> {
    const parts = await this.#prepare(source);
    const { config } = source;
    const session = await startSession(parts, `${source.name}_autocomplete`);
    try {
      const given: unknown = JSON.parse(formatModelConfigJson(config));
      applyCompletion(config, await session.autoComplete(given));
    } finally {
      session.kill("");
      await session.ended;
    }
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    if (await hasCompiledStub(source)) {
      this.#context.log.warning(
        `model '${source.name}': triton_python_backend_stub is not used; any Python with NumPy runs ` +
          `the model, see EXECUTION_ENV_PATH and --backend-config=python,python-executable`,
      );
    }
    return new PythonModel(await this.#prepare(source));
  }

  async #prepare(source: ModelSource): Promise<PythonModelParts> {
    const file = await findPythonFile(source, this.#modelFile);
    checkModelParameters(source);
    const folder = await this.#openFolder();
    this.#environments ??= new EnvironmentStore(folder, this.#context.log);
    const environment = await this.#environments.open(source);
    const interpreter = await chooseInterpreter(this.#settings.executable, environment);
    const context = this.#context;
    return { source, file, interpreter, settings: this.#settings, folder, context };
  }

  async #openFolder(): Promise<RuntimeFolder> {
    this.#folder ??= RuntimeFolder.create();
    try {
      return await this.#folder;
    } catch (reason) {
      // The next load may find room.
      this.#folder = undefined;
      throw reason;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const folder = await this.#folder?.catch(() => undefined);
    await folder?.[Symbol.asyncDispose]();
  }
}
