import { ServerError } from "../../proto/status.ts";
import { configError } from "../../proto/model_config.ts";
import { type CallGate, createCallGate } from "../../ffi/call_gate.ts";
import {
  listProviders,
  missingBridge,
  type OrtEnvironment,
  OrtError,
  OrtSession,
  PROVIDER_NAMES,
  type ProviderSettings,
  readAssignment,
  RECORD_ASSIGNMENT_ENTRY,
  type SessionSettings,
} from "../../ffi/onnxruntime/mod.ts";
import type { BackendContext, ModelSource } from "../backend.ts";
import { DEVICE_CLASS_NAMES } from "../device_list.ts";
import { readProviders, type SessionDevice } from "./accelerators.ts";
import { keepEngines, tensorRtVersions } from "./engine_cache.ts";
import {
  countOperators,
  explainSessionError,
  lackedOperators,
  lacksOperators,
  NO_CPU_FALLBACK_ENTRY,
  nodesOnCpu,
  PROVIDER_PACKAGES,
} from "./session_error.ts";
import { readModelSettings } from "./session_settings.ts";

const MAX_LOADS_IN_FLIGHT = 4;

/** Opens sessions of models on devices. */
export class SessionOpener {
  readonly #context: BackendContext;
  readonly #gate: CallGate = createCallGate(MAX_LOADS_IN_FLIGHT);

  constructor(context: BackendContext) {
    this.#context = context;
  }

  /** @throws ServerError with what is missing, and the way out. */
  async open(
    environment: OrtEnvironment,
    source: ModelSource,
    { path, place }: { readonly path: string; readonly place: SessionDevice },
  ): Promise<OrtSession> {
    const { session: settings } = readModelSettings(source, this.#context.settings);
    const providers = readProviders(source.config, place);
    checkProviders(environment, providers);
    const turn = this.#gate.enter();
    if (turn !== undefined) await turn;
    try {
      const session = await this.#openOn(environment, settings, {
        source,
        path,
        place,
        providers: await this.#completeProviders(environment, providers, { source, place }),
      });
      if (place.device !== "cpu") this.#tellCpuNodes(session, source, place);
      return session;
    } catch (error) {
      if (!(error instanceof OrtError)) throw ServerError.from(error);
      throw await explainSessionError(error, { path, ...environment });
    } finally {
      this.#gate.leave();
    }
  }

  async #openOn(
    environment: OrtEnvironment,
    settings: SessionSettings,
    { source, path, place: { device }, providers }: {
      readonly source: ModelSource;
      readonly path: string;
      readonly place: SessionDevice;
      readonly providers: readonly ProviderSettings[];
    },
  ): Promise<OrtSession> {
    if (device === "cpu" && providers.length === 0) {
      // With the CPU alone there is nothing to fall back from.
      const { [NO_CPU_FALLBACK_ENTRY]: _, ...entries } = settings.entries ?? {};
      return await OrtSession.open(environment, path, { ...settings, entries });
    }
    const entries = { ...settings.entries, [RECORD_ASSIGNMENT_ENTRY]: "1" };
    try {
      return await OrtSession.open(environment, path, { ...settings, entries, providers });
    } catch (error) {
      if (!(error instanceof OrtError) || !lacksOperators(error)) throw error;
      // The runtime does not say which: a session that may use the CPU does.
      const open = { ...entries, [NO_CPU_FALLBACK_ENTRY]: "0" };
      using session = await OrtSession.open(environment, path, {
        ...settings,
        entries: open,
        providers,
      });
      const nodes = readAssignment(environment, session.pointer) ?? [];
      // On a CPU it is the accelerator that lacks them.
      const accelerator = device === "cpu" ? providers[0]?.name : undefined;
      throw lackedOperators(source.name, { device, accelerator }, nodes);
    }
  }

  /** Gives TensorRT a place for its engines. */
  async #completeProviders(
    { version }: OrtEnvironment,
    providers: readonly ProviderSettings[],
    { source, place }: { readonly source: ModelSource; readonly place: SessionDevice },
  ): Promise<ProviderSettings[]> {
    const { settings, devices } = this.#context;
    return await Promise.all(providers.map(async (provider) => {
      if (provider.name !== "TensorRT") return provider;
      const { gpus } = await devices?.gpus() ?? { gpus: [] };
      const gpu = gpus.find(({ id }) => id === place.deviceId);
      const device = `${gpu?.name ?? place.deviceId} ${gpu?.computeCapability ?? ""}`;
      const surroundings = { libraries: [version, ...tensorRtVersions()], device };
      const { versionDirectory } = source;
      try {
        return await keepEngines(provider, { versionDirectory, settings, surroundings });
      } catch (reason) {
        const { message } = ServerError.from(reason);
        this.#context.log.warning(
          `TensorRT engines of model '${source.name}' are not kept for the next load: ${message}`,
        );
        return provider;
      }
    }));
  }

  #tellCpuNodes(session: OrtSession, { name }: ModelSource, { device }: SessionDevice): void {
    const { environment } = session;
    const nodes = nodesOnCpu(readAssignment(environment, session.pointer) ?? []);
    if (nodes.length === 0) return;
    const family = DEVICE_CLASS_NAMES[device];
    this.#context.log.info(
      `model '${name}' on ${family}: ${nodes.length} nodes run on the CPU, since ${family} lacks ` +
        `them or they work on shapes: ${countOperators(nodes)}`,
    );
  }
}

/** @throws ServerError naming the provider that the library lacks, and what brings it. */
function checkProviders(environment: OrtEnvironment, providers: readonly ProviderSettings[]): void {
  if (providers.length === 0) return;
  const { version, libraryPath, calls } = environment;
  const known = listProviders(calls);
  const library = `ONNX Runtime ${version} from ${libraryPath}`;
  for (const { name } of providers) {
    const listed = PROVIDER_NAMES[name];
    const isBuiltIn = known.includes(listed);
    const missing = isBuiltIn ? missingBridge(libraryPath, listed) : "";
    if (isBuiltIn && missing === "") continue;
    const reason = isBuiltIn
      ? `of ${library}, ${missing}`
      : `${library} was built without it, it has ${known.join(", ")}`;
    const way = `${PROVIDER_PACKAGES[name]} brings it; --backend-config=onnxruntime,library=FILE ` +
      `names its libonnxruntime.so`;
    if (name === "CUDA" || name === "WebGPU") {
      throw new ServerError("UNAVAILABLE", `no provider for ${name}: ${reason} (${way})`);
    }
    throw configError([{
      path: ACCELERATOR_PATHS[name],
      message: `unknown Execution Accelerator '${name.toLowerCase()}' is requested`,
      hint: `${reason}; ${way}; or take the entry out`,
    }]);
  }
}

const ACCELERATOR_PATHS = {
  TensorRT: "optimization.execution_accelerators.gpu_execution_accelerator",
  OpenVINO: "optimization.execution_accelerators.cpu_execution_accelerator",
} as const;
