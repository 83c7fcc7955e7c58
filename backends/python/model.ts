import { formatModelConfigJson } from "../../proto/model_config_json.ts";
import type {
  BackendContext,
  BackendModel,
  InstancePlacement,
  ModelInstance,
  ModelSource,
} from "../backend.ts";
import { SYSTEM_TIMERS } from "../pause.ts";
import { RestartPace } from "../restart_pace.ts";
import { PythonInstance, type StartedModel } from "./instance.ts";
import { checkInstanceName, type PythonFile } from "./model_file.ts";
import type { PythonInterpreter } from "./interpreter.ts";
import type { PythonSettings } from "./python_settings.ts";
import type { RuntimeFolder } from "./runtime_folder.ts";
import { StubSession } from "./stub_session.ts";

/** What a model is made of. */
export interface PythonModelParts {
  readonly source: ModelSource;
  readonly file: PythonFile;
  readonly interpreter: PythonInterpreter;
  readonly settings: PythonSettings;
  readonly folder: RuntimeFolder;
  readonly context: BackendContext;
}

/** One loaded Python model: every instance is a process of its own. */
export class PythonModel implements BackendModel {
  readonly #parts: PythonModelParts;

  constructor(parts: PythonModelParts) {
    this.#parts = parts;
  }

  async createInstance(placement: InstancePlacement): Promise<ModelInstance> {
    const { settings, context } = this.#parts;
    return await PythonInstance.create({
      start: (signal) => this.#start(placement, signal),
      restartPace: settings.restarts ? new RestartPace() : undefined,
      executeTimeoutMs: settings.executeTimeoutMs,
      finalizeTimeoutMs: settings.stubTimeoutMs,
      timers: SYSTEM_TIMERS,
      now: context.now,
      warn: (message) => context.log.warning(message),
    }, placement);
  }

  async #start(placement: InstancePlacement, signal: AbortSignal): Promise<StartedModel> {
    const session = await startSession(this.#parts, placement.name);
    const giveUp = () => session.kill("the model is unloaded");
    signal.addEventListener("abort", giveUp);
    try {
      if (signal.aborted) giveUp();
      const { hasIsReady } = await session.initialize(
        initializeArgs(this.#parts.source, placement),
      );
      return { session, hasIsReady };
    } catch (reason) {
      session.kill("");
      await session.ended;
      throw reason;
    } finally {
      signal.removeEventListener("abort", giveUp);
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

/** Starts a process for a model. @throws ServerError, also for a name that a process may not have. */
export async function startSession(
  parts: PythonModelParts,
  instance: string,
): Promise<StubSession> {
  checkInstanceName(instance);
  const { source, file, interpreter, settings, folder, context } = parts;
  const { config } = source;
  return await StubSession.start({
    command: {
      executable: interpreter.executable,
      environment: interpreter.environment,
      args: ["-u", folder.stubPath],
      program: {
        name: "Python",
        advice: "name one with --backend-config=python,python-executable=PATH",
      },
      letters: ["A", "B"],
      socketPath: folder.nextSocketPath(),
      instanceName: instance,
      connectTimeoutMs: settings.stubTimeoutMs,
    },
    model: {
      path: file.path,
      module: file.module,
      modelDirectory: source.modelDirectory,
      versionDirectory: source.versionDirectory,
      name: source.name,
      instance,
      decoupled: config.modelTransactionPolicy?.decoupled ?? false,
      outputs: config.output.map(({ name }) => name),
    },
    limits: settings.memory,
    host: context.host,
    log: context.log,
    now: context.now,
  });
}

/** The argument of `initialize` (python-backend.md §A2). */
function initializeArgs(
  { name, version, modelDirectory, config }: ModelSource,
  placement: InstancePlacement,
): Record<string, string> {
  return {
    model_config: formatModelConfigJson(config),
    model_instance_kind: placement.kind.replace(/^KIND_/, ""),
    model_instance_name: placement.name,
    model_instance_device_id: String(placement.deviceId),
    model_repository: modelDirectory,
    model_version: String(version),
    model_name: name,
  };
}
