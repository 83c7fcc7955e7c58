import { create } from "@bufbuild/protobuf";
import { type ModelConfig, ModelTransactionPolicySchema } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type {
  Backend,
  BackendContext,
  BackendModel,
  Devices,
  InstancePreference,
  KindOffer,
  ModelSource,
} from "../backend.ts";
import { CPU_OFFER } from "../device_list.ts";
import { IsolatedModel } from "./isolated_model.ts";
import { IsolatedProcess, type IsolatedProcessParts } from "./isolated_process.ts";
import { readIsolationSettings } from "./isolation_settings.ts";

/** What an isolated backend is opened with. */
export interface IsolatedBackendOptions {
  readonly name: string;
  readonly directory: string;
  /** Those of the backend, without those that ask for isolation. */
  readonly settings: ReadonlyMap<string, string>;
}

/** A process that did a part of a load waits so long for the part that follows. */
const KEPT_PROCESS_TTL_MS = 10_000;

interface KeptForLoad {
  readonly process: IsolatedProcess;
  readonly timer: ReturnType<typeof setTimeout>;
}

/** A backend that never is in the process of the server: other processes open it, each for one instance. */
export class IsolatedBackend implements Backend {
  readonly name: string;
  readonly preference: InstancePreference;
  readonly usesSecondaryDevices: boolean;
  readonly kinds?: (devices: Devices, source?: ModelSource) => Promise<readonly KindOffer[]>;
  readonly #parts: IsolatedProcessParts;
  /** By configuration: a load does one thing after the other with the same. `undefined` = not for a load yet. */
  readonly #kept = new Map<ModelConfig | undefined, KeptForLoad>();

  private constructor(parts: IsolatedProcessParts, first: IsolatedProcess) {
    this.#parts = parts;
    const { name, preference, hasKinds, usesSecondaryDevices } = first.opened;
    this.name = name;
    this.preference = preference;
    this.usesSecondaryDevices = usesSecondaryDevices;
    if (hasKinds && parts.context.devices !== undefined) {
      this.kinds = (_devices, source) => this.#offers(source);
    }
    this.#keep(undefined, first);
  }

  /** @throws ServerError, also when the backend crashes as it is opened. */
  static async open(
    { name, directory, settings }: IsolatedBackendOptions,
    context: BackendContext,
  ): Promise<IsolatedBackend> {
    const parts = {
      backend: name,
      directory,
      context,
      settings: readIsolationSettings(context.settings),
      backendSettings: settings,
    };
    return new IsolatedBackend(parts, await IsolatedProcess.start(parts));
  }

  async autoComplete(source: ModelSource): Promise<void> {
    await this.#with(source.config, async (process) => {
      applyCompletion(source.config, await process.autoComplete(source));
    });
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    const process = await this.#take(source.config);
    try {
      await process.openModel(source);
      return new IsolatedModel(this.#parts, source, process);
    } catch (reason) {
      await process.end();
      throw reason;
    }
  }

  async #offers(source: ModelSource | undefined): Promise<readonly KindOffer[]> {
    try {
      return await this.#with(source?.config, (process) => process.kinds(source));
    } catch (reason) {
      return [{ ...CPU_OFFER, refusal: ServerError.from(reason).message }];
    }
  }

  /** Does a part of a load in a process, which is kept for the next part. */
  async #with<Result>(
    config: ModelConfig | undefined,
    use: (process: IsolatedProcess) => Promise<Result>,
  ): Promise<Result> {
    const process = await this.#take(config);
    try {
      const result = await use(process);
      await this.#keep(config, process);
      return result;
    } catch (reason) {
      await process.end();
      throw reason;
    }
  }

  async #take(config: ModelConfig | undefined): Promise<IsolatedProcess> {
    for (const key of [config, undefined]) {
      const kept = this.#kept.get(key);
      if (kept === undefined) continue;
      clearTimeout(kept.timer);
      this.#kept.delete(key);
      if (!kept.process.isOver) return kept.process;
    }
    return await IsolatedProcess.start(this.#parts);
  }

  async #keep(config: ModelConfig | undefined, process: IsolatedProcess): Promise<void> {
    if (this.#kept.has(config)) return await process.end();
    const timer = setTimeout(() => void this.#drop(config), KEPT_PROCESS_TTL_MS);
    Deno.unrefTimer(timer);
    this.#kept.set(config, { process, timer });
  }

  async #drop(config: ModelConfig | undefined): Promise<void> {
    const kept = this.#kept.get(config);
    if (kept === undefined) return;
    clearTimeout(kept.timer);
    this.#kept.delete(config);
    await kept.process.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#kept.keys()].map((config) => this.#drop(config)));
  }
}

/** Takes over what a backend may complete (`Backend.autoComplete`). */
function applyCompletion(config: ModelConfig, completed: ModelConfig): void {
  config.maxBatchSize = completed.maxBatchSize;
  config.input = completed.input;
  config.output = completed.output;
  config.schedulingChoice = completed.schedulingChoice;
  const policy = completed.modelTransactionPolicy;
  if (policy === undefined) return;
  config.modelTransactionPolicy ??= create(ModelTransactionPolicySchema);
  config.modelTransactionPolicy.decoupled = policy.decoupled;
}
