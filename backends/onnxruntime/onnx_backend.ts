import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { createCallGate } from "../../ffi/call_gate.ts";
import { createCallRunner } from "../../ffi/call_list.ts";
import { DeviceCalls } from "../../ffi/cuda/device_calls.ts";
import { openCudaExecution } from "../../ffi/cuda/execution_library.ts";
import { LibraryNotFoundError } from "../../ffi/library.ts";
import { loadMachineCode } from "../../ffi/machine_code.ts";
import { type NativeAllocator, tuneNativeAllocator } from "../../ffi/posix/malloc.ts";
import {
  type GlobalThreadPools,
  listProviders,
  OrtEnvironment,
  OrtError,
  OrtMemory,
  type OrtSession,
} from "../../ffi/onnxruntime/mod.ts";
import {
  type Backend,
  type BackendContext,
  type BackendModel,
  deviceOfGroup,
  type Devices,
  type KindOffer,
  type ModelSource,
} from "../backend.ts";
import { completeConfig, isComplete } from "../onnx_auto_complete.ts";
import { prefersWebGpu, type SessionDevice } from "./accelerators.ts";
import { DeviceModels } from "./device_models.ts";
import type { GpuCopies } from "./gpu_batch.ts";
import { offerKinds, type RuntimeLibrary } from "./kind_offers.ts";
import { OnnxModel } from "./model.ts";
import type { SessionMemory } from "./session_memory.ts";
import { findModelFile } from "../onnx_model_file.ts";
import { runtimeError } from "./run_session.ts";
import { RunPace } from "./run_pace.ts";
import { createRunPlan } from "../onnx_run_plan.ts";
import { flagSetting, integerSetting } from "../onnx_setting_values.ts";
import { SessionOpener } from "./session_opener.ts";
import { readModelSettings } from "./session_settings.ts";
import { checkSignature } from "../onnx_signature_check.ts";
import { isSteadyModelFile } from "./steady_model.ts";

/** Runs in flight: half of the runtime's blocking pool, which also serves files and name lookups. */
const MAX_RUNS_IN_FLIGHT = 16;
/** A session opened for completion waits this long for the load that follows. */
const PREPARED_SESSION_TTL_MS = 30_000;

/** ONNX models through the native ONNX Runtime, on CPUs, NVIDIA GPUs and WebGPU. */
export class OnnxBackend implements Backend {
  readonly name = "onnxruntime";
  readonly preference = { kind: "KIND_CPU", count: 2 } as const;
  readonly #context: BackendContext;
  readonly #runGate = createCallGate(MAX_RUNS_IN_FLIGHT);
  readonly #opener: SessionOpener;
  readonly #prepared = new Map<ModelConfig, PreparedSession>();
  #environment: OrtEnvironment | undefined;
  #allocator: NativeAllocator | undefined;
  /** Opened with the first model on a GPU. */
  #copies: ReturnType<typeof openGpuCopies> | undefined;

  constructor(context: BackendContext) {
    this.#context = context;
    this.#opener = new SessionOpener(context);
  }

  async kinds(devices: Devices, source?: ModelSource): Promise<readonly KindOffer[]> {
    const key = "webgpu-software";
    return await offerKinds(devices, {
      openLibrary: () => this.#describeLibrary(),
      allowsSoftware: /^(?:1|true)$/i.test(this.#context.settings.get(key) ?? ""),
      prefersWebGpu: source !== undefined && prefersWebGpu(source.config),
    });
  }

  #describeLibrary(): RuntimeLibrary | Error {
    try {
      const { version, libraryPath, calls } = this.#openEnvironment();
      return { version, path: libraryPath, providers: listProviders(calls) };
    } catch (error) {
      return ServerError.from(error);
    }
  }

  async autoComplete(source: ModelSource): Promise<void> {
    const { config } = source;
    if (isComplete(config)) return;
    const defaultMaxBatchSize = integerSetting(this.#context.settings, "default-max-batch-size");
    const path = await findModelFile(source);
    const { session, isForLoad } = await this.#openForSignature(source, path);
    try {
      const modelName = source.name;
      completeConfig(config, session.signature, { modelName, defaultMaxBatchSize });
    } catch (error) {
      session[Symbol.dispose]();
      throw error;
    }
    if (isForLoad) this.#keep(config, { path, session });
    else session[Symbol.dispose]();
  }

  /** On the device of the model; where it cannot run there, on the CPU: the load will tell why, or take another kind. */
  async #openForSignature(
    source: ModelSource,
    path: string,
  ): Promise<{ readonly session: OrtSession; readonly isForLoad: boolean }> {
    const environment = this.#openEnvironment();
    const place = firstPlace(source.config);
    try {
      const session = await this.#opener.open(environment, source, { path, place });
      return { session, isForLoad: true };
    } catch (error) {
      if (place.device === "cpu" || ServerError.from(error).code === "INVALID_ARG") throw error;
    }
    const session = await this.#opener.open(environment, source, { path, place: CPU_PLACE });
    return { session, isForLoad: false };
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    const path = await findModelFile(source);
    const place = firstPlace(source.config);
    const session = this.#takePrepared(source.config, path);
    const model = await this.#createModel(source, { path, place, session });
    return new DeviceModels(
      { place, model },
      (place) => this.#createModel(source, { path, place, session: undefined }),
    );
  }

  async #createModel(
    source: ModelSource,
    { path, place, session: prepared }: {
      readonly path: string;
      readonly place: SessionDevice;
      readonly session: OrtSession | undefined;
    },
  ): Promise<OnnxModel> {
    const { now, countBatchRetry, settings } = this.#context;
    const { runEntries } = readModelSettings(source, settings);
    const session = prepared ??
      await this.#opener.open(this.#openEnvironment(), source, { path, place });
    using owned = new DisposableStack();
    owned.use(session);
    checkSignature(source, session.signature);
    const memory = place.device === "cuda"
      ? await this.#openMemory(session, place, owned)
      : undefined;
    const model = new OnnxModel({
      name: source.name,
      session,
      memory,
      plan: createRunPlan(source.config, session.signature),
      runEntries,
      gate: this.#runGate,
      // What waits for a device must not hold up the event loop.
      pace: new RunPace(
        place.device === "cpu" && await isSteadyModelFile(path),
        this.#context.blockingLimitMs,
      ),
      now,
      countBatchRetry: () => countBatchRetry(source.name, source.version),
      trimMemory: async () => await this.#allocator?.trim(),
    });
    owned.move();
    return model;
  }

  async #openMemory(
    { environment }: OrtSession,
    { deviceId }: SessionDevice,
    owned: DisposableStack,
  ): Promise<SessionMemory> {
    const memory = owned.use(OrtMemory.of(environment, "Cuda", deviceId));
    this.#copies ??= openGpuCopies(this.#context.log);
    const open = await this.#copies;
    return { deviceId, memory, copies: open?.(deviceId) };
  }

  /** Opened with the first model, so that a missing library concerns only models that need it. */
  #openEnvironment(): OrtEnvironment {
    if (this.#environment !== undefined) return this.#environment;
    const { settings, log } = this.#context;
    try {
      const environment = OrtEnvironment.open({
        libraryPath: settings.get("library"),
        globalThreadPools: readGlobalThreadPools(settings),
      });
      this.#allocator = tuneNativeAllocator();
      log.info(`ONNX Runtime ${environment.version} from ${environment.libraryPath}`);
      return this.#environment = environment;
    } catch (error) {
      if (error instanceof OrtError) throw runtimeError(error);
      if (error instanceof LibraryNotFoundError) {
        throw new ServerError("UNAVAILABLE", error.message, { cause: error });
      }
      throw ServerError.from(error, "UNAVAILABLE");
    }
  }

  /** Keeps the session for the `openModel` that usually follows, so that a model is not loaded twice. */
  #keep(config: ModelConfig, { path, session }: Pick<PreparedSession, "path" | "session">): void {
    this.#drop(config);
    const timer = setTimeout(() => this.#drop(config), PREPARED_SESSION_TTL_MS);
    Deno.unrefTimer(timer);
    this.#prepared.set(config, { path, session, timer });
  }

  #takePrepared(config: ModelConfig, path: string): OrtSession | undefined {
    const prepared = this.#prepared.get(config);
    if (prepared === undefined) return undefined;
    this.#prepared.delete(config);
    clearTimeout(prepared.timer);
    if (prepared.path === path) return prepared.session;
    prepared.session[Symbol.dispose]();
    return undefined;
  }

  #drop(config: ModelConfig): void {
    const prepared = this.#prepared.get(config);
    if (prepared === undefined) return;
    this.#prepared.delete(config);
    clearTimeout(prepared.timer);
    prepared.session[Symbol.dispose]();
  }

  /** The environment stays: it is one per process, and finalizers may still free values in it. */
  [Symbol.asyncDispose](): Promise<void> {
    for (const config of [...this.#prepared.keys()]) this.#drop(config);
    return Promise.resolve();
  }
}

/** The CUDA runtime, by which requests are joined on a GPU; without it they run one by one. */
async function openGpuCopies(
  log: BackendContext["log"],
): Promise<((deviceId: number) => GpuCopies) | undefined> {
  try {
    const runner = createCallRunner(loadMachineCode());
    const cuda = await openCudaExecution(runner);
    return (deviceId) => ({ device: new DeviceCalls(cuda, deviceId), runner });
  } catch (reason) {
    const { message } = ServerError.from(reason);
    log.info(`requests with tensors in regions on a GPU run one by one: ${message}`);
    return undefined;
  }
}

const CPU_PLACE: SessionDevice = { device: "cpu", deviceId: 0 };

/** Where the first instances of a configuration go, which has been given to the backend with kinds decided. */
function firstPlace(config: ModelConfig): SessionDevice {
  const group = config.instanceGroup.find(({ passive }) => !passive);
  const device = group === undefined ? "cpu" : deviceOfGroup(config, group);
  return { device, deviceId: device === "cpu" ? 0 : group?.gpus[0] ?? 0 };
}

interface PreparedSession {
  readonly path: string;
  readonly session: OrtSession;
  readonly timer: ReturnType<typeof setTimeout>;
}

function readGlobalThreadPools(
  settings: BackendContext["settings"],
): GlobalThreadPools | undefined {
  if (flagSetting(settings, "enable-global-threadpool") !== true) return undefined;
  return {
    intraOpThreadCount: Math.max(integerSetting(settings, "intra_op_thread_count") ?? 0, 0),
    interOpThreadCount: Math.max(integerSetting(settings, "inter_op_thread_count") ?? 0, 0),
  };
}
