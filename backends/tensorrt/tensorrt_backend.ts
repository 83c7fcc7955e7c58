import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { createCallGate } from "../../ffi/call_gate.ts";
import { openCudaExecution } from "../../ffi/cuda/execution_library.ts";
import { LibraryNotFoundError } from "../../ffi/library.ts";
import { loadPlugins, openTensorRt } from "../../ffi/tensorrt/library.ts";
import type { Backend, BackendContext, BackendModel, ModelSource } from "../backend.ts";
import { type Devices, type KindOffer, offerGpus } from "../device_list.ts";
import { completeConfig, isComplete } from "./auto_complete.ts";
import { checkConfig } from "./config_check.ts";
import { type DeviceSlot, DeviceSlots } from "./device_slots.ts";
import { EngineStore, type HeldEngine } from "./engine_store.ts";
import { TensorRtModel } from "./model.ts";
import { planError } from "./open_engine.ts";
import { findPlanFile, planHint, readPlan } from "./plan_file.ts";
import { createRunPlan } from "./run_plan.ts";
import { runSelfCheck } from "./self_check_process.ts";

/** Lists of calls in flight: a quarter of the runtime's blocking pool, of which ONNX models have half. */
const MAX_RUNS_IN_FLIGHT = 8;
/** An engine opened for completion waits this long for the load that follows. */
const PREPARED_ENGINE_TTL_MS = 30_000;

const INSTALL_HINT = "; TensorRT's runtime comes with the packages libnvinfer10 (Debian, from " +
  "NVIDIA's repository) or tensorrt-cu12 (PyPI), the CUDA runtime with cuda-cudart or " +
  "nvidia-cuda-runtime-cu12; --backend-config=tensorrt,library=FILE and " +
  "--backend-config=tensorrt,cuda-library=FILE name them where the system's loader does not look";

/** Plans of TensorRT on NVIDIA GPUs. */
export class TensorRtBackend implements Backend {
  readonly name = "tensorrt";
  readonly preference = { kind: "KIND_GPU", count: 1 } as const;
  /** Cores of a deep learning accelerator. */
  readonly usesSecondaryDevices = true;
  readonly #context: BackendContext;
  readonly #gate = createCallGate(MAX_RUNS_IN_FLIGHT);
  readonly #prepared = new Map<ModelConfig, PreparedEngine>();
  #slots: Promise<DeviceSlots> | undefined;
  #isChecked = false;
  #logPosition = 0;

  constructor(context: BackendContext) {
    this.#context = context;
    this.#isChecked = context.settings.get("self-check") === "false";
  }

  async kinds(devices: Devices): Promise<KindOffer[]> {
    return [offerGpus(await devices.gpus())];
  }

  async autoComplete(source: ModelSource): Promise<void> {
    if (isComplete(source.config)) return;
    const prepared = await this.#open(source);
    try {
      completeConfig(source.config, prepared.held.engine.signature, source.name);
    } catch (error) {
      await prepared.held.release();
      throw error;
    }
    await this.#keep(source.config, prepared);
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    const { config, name, version } = source;
    const { now, log, countBatchRetry } = this.#context;
    const { held, engines } = this.#takePrepared(config) ?? await this.#open(source);
    try {
      const { signature } = held.engine;
      checkConfig(config, signature, name);
      createRunPlan(config, signature, name);
    } catch (error) {
      await held.release();
      throw error;
    }
    return new TensorRtModel({
      name,
      config,
      engines,
      held,
      gate: this.#gate,
      log,
      now,
      countBatchRetry: () => countBatchRetry(name, version),
      pinnedBudget: this.#context.deviceMemory?.pinned,
      passLog: () => void this.#slots?.then(({ library }) => this.#passLog(library.logger)),
    });
  }

  /** Opens the engine of a model on the first device its groups name. */
  async #open(source: ModelSource): Promise<{ held: HeldEngine; engines: EngineStore }> {
    const slots = await this.#openSlots();
    const findPlan = (slot: DeviceSlot) => findPlanFile(source, slot.capability);
    const engines = new EngineStore(slots, findPlan);
    const deviceId = source.config.instanceGroup.find(({ gpus }) => gpus.length > 0)?.gpus[0] ?? 0;
    try {
      if (!this.#isChecked) await this.#check(source, slots, deviceId);
      return { held: await engines.acquire({ deviceId }), engines };
    } catch (error) {
      throw planError(error, source.name, slots.library.version.text);
    } finally {
      this.#passLog(slots.library.logger);
    }
  }

  /** The libraries are opened with the first model, so that missing ones concern only models that need them. */
  #openSlots(): Promise<DeviceSlots> {
    if (this.#slots === undefined) {
      this.#slots = this.#createSlots();
      this.#slots.catch(() => this.#slots = undefined);
    }
    return this.#slots;
  }

  async #createSlots(): Promise<DeviceSlots> {
    const { settings, log } = this.#context;
    try {
      const library = openTensorRt({ path: settings.get("library") });
      const cuda = await openCudaExecution(library.runner, { path: settings.get("cuda-library") });
      const files = (settings.get("plugins") ?? "").split(";").filter((file) => file !== "");
      const plugins = await loadPlugins(library, files);
      log.info(`TensorRT ${library.version.text} from ${library.path}, CUDA from ${cuda.path}`);
      if (plugins.length > 0) log.info(`TensorRT's plugins from ${plugins.join(", ")}`);
      const allowsHostCode = settings.get("version-compatible") === "true";
      const memory = this.#context.deviceMemory;
      return new DeviceSlots(library, cuda, { allowsHostCode, memory });
    } catch (error) {
      if (error instanceof LibraryNotFoundError) {
        throw new ServerError("UNAVAILABLE", error.message + INSTALL_HINT, { cause: error });
      }
      throw ServerError.from(error, "UNAVAILABLE");
    }
  }

  /** Tries library and plan in a process of their own, until that went well once (native-abi.md §1.8). */
  async #check(source: ModelSource, slots: DeviceSlots, deviceId: number): Promise<void> {
    if (Deno.build.standalone) return;
    // Nothing of TensorRT itself runs in this process before.
    const planPath = await findPlanFile(source, await slots.capability(deviceId));
    await readPlan(planPath);
    const { library, cuda } = slots;
    const result = await runSelfCheck({
      libraryPath: library.path,
      cudaPath: cuda.path,
      planPath,
      deviceId,
    });
    if (result.isGood) {
      this.#isChecked = true;
      return;
    }
    const { stage, reason } = result;
    if (stage === "library" || stage === "runtime") {
      throw new ServerError(
        "UNAVAILABLE",
        `TensorRT ${library.version.text} from '${library.path}' is refused, it failed when it was ` +
          `tried in a process of its own (${stage}): ${reason}`,
      );
    }
    throw new ServerError(
      "INVALID_ARG",
      `unable to load '${planPath}': TensorRT failed when it was tried with it in a process of its ` +
        `own (${stage}): ${reason}${planHint(reason, library.version.text)}`,
    );
  }

  #passLog(logger: DeviceSlots["library"]["logger"]): void {
    const { log } = this.#context;
    const lines = logger.since(this.#logPosition);
    this.#logPosition = logger.position;
    for (const { severity, text } of lines) {
      const line = `TensorRT: ${text}`;
      if (severity === "verbose" || severity === "info") log.verbose(1, line);
      else log.warning(line);
    }
  }

  /** Keeps the engine for the `openModel` that usually follows, so that a plan is not loaded twice. */
  async #keep(config: ModelConfig, prepared: Omit<PreparedEngine, "timer">): Promise<void> {
    await this.#drop(config);
    const timer = setTimeout(() => void this.#drop(config), PREPARED_ENGINE_TTL_MS);
    Deno.unrefTimer(timer);
    this.#prepared.set(config, { ...prepared, timer });
  }

  #takePrepared(config: ModelConfig): PreparedEngine | undefined {
    const prepared = this.#prepared.get(config);
    if (prepared === undefined) return undefined;
    this.#prepared.delete(config);
    clearTimeout(prepared.timer);
    return prepared;
  }

  async #drop(config: ModelConfig): Promise<void> {
    await this.#takePrepared(config)?.held.release();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const config of [...this.#prepared.keys()]) await this.#drop(config);
    const slots = this.#slots;
    this.#slots = undefined;
    await slots?.then((opened) => opened[Symbol.asyncDispose](), () => {});
  }
}

interface PreparedEngine {
  readonly held: HeldEngine;
  readonly engines: EngineStore;
  readonly timer: ReturnType<typeof setTimeout>;
}
