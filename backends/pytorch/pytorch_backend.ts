import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { createCallGate } from "../../ffi/call_gate.ts";
import {
  buildShim,
  defaultShimFolder,
  hasCudaLibrary,
  locateTorch,
  switchBits,
  type TorchFolders,
  type TorchModule,
  TorchRuntime,
} from "../../ffi/pytorch/mod.ts";
import type { Backend, BackendContext, BackendModel, Devices, ModelSource } from "../backend.ts";
import { CPU_OFFER, type KindOffer } from "../backend.ts";
import { offerGpus } from "../device_list.ts";
import { findModelFile } from "../onnx_model_file.ts";
import { createRunPlan } from "../onnx_run_plan.ts";
import { resolvePackageNames } from "./call_spec.ts";
import { checkTensors } from "./configured_io.ts";
import { TorchModel, type TorchPlace } from "./model.ts";
import { type Naming, resolveNames } from "./naming.ts";
import { type ModelFile, openModule } from "./open_module.ts";
import { checkPackagePlace, firstPlace, torchPlace } from "./placement.ts";
import { readTorchSettings, type TorchSettings, TorchThreads } from "./settings.ts";
import { signatureOfConfig } from "./tensors.ts";

const MAX_RUNS_IN_FLIGHT = 16;

/** TorchScript modules and AOTInductor packages through a shim that is built against the libtorch of this machine. */
export class PyTorchBackend implements Backend {
  readonly name = "pytorch";
  readonly preference = { kind: "KIND_CPU", count: 1 } as const;
  readonly #context: BackendContext;
  readonly #gate = createCallGate(MAX_RUNS_IN_FLIGHT);
  readonly #threads: TorchThreads;
  #opening: Promise<TorchRuntime> | undefined;

  constructor(context: BackendContext) {
    this.#context = context;
    this.#threads = new TorchThreads(context.log);
  }

  async kinds(devices: Devices): Promise<readonly KindOffer[]> {
    const gpus = offerGpus(await devices.gpus());
    if (gpus.refusal !== undefined) return [CPU_OFFER, gpus];
    try {
      const torch = locateTorch(this.#context.settings.get("library"));
      if (hasCudaLibrary(torch)) return [gpus, CPU_OFFER];
      return [CPU_OFFER, { ...gpus, deviceIds: [], refusal: withoutCuda(torch) }];
    } catch (error) {
      return [CPU_OFFER, { ...gpus, deviceIds: [], refusal: ServerError.from(error).message }];
    }
  }

  /** A TorchScript file tells nothing that could complete a configuration. */
  autoComplete(): Promise<void> {
    return Promise.resolve();
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    const { config, name } = source;
    const format = formatOf(config);
    checkTensors(config, format === "package" ? "package" : "TorchScript file");
    const settings = readTorchSettings(source);
    const path = await findModelFile(
      { ...source, config: withFileName(config, format) },
      "pytorch",
    );
    const runtime = await this.#openRuntime();
    this.#applySettings(name, settings, runtime);
    const instanceCount = config.instanceGroup.reduce((sum, { count }) => sum + count, 0);
    const runners = settings.weightSharing ? Math.max(instanceCount, 1) : 1;
    const file: ModelFile = { path, format, runners, modelName: name };
    const place = firstPlace(config, runtime);
    const module = await openModule(runtime, file, place);
    try {
      return this.#createModel(source, { settings, runtime, file, first: { place, module } });
    } catch (error) {
      module[Symbol.dispose]();
      throw error;
    }
  }

  #createModel(
    source: ModelSource,
    { settings, runtime, file, first }: {
      readonly settings: TorchSettings;
      readonly runtime: TorchRuntime;
      readonly file: ModelFile;
      readonly first: { readonly place: TorchPlace; readonly module: TorchModule };
    },
  ): TorchModel {
    const { config, name, version } = source;
    const { now, log, countBatchRetry } = this.#context;
    const naming = namesOf(config, file, first);
    for (const warning of naming.warnings) log.warning(warning);
    return new TorchModel({
      log,
      first,
      sharesWeights: settings.weightSharing,
      placeOf: (placement) => {
        const place = torchPlace(placement, { modelName: name, format: file.format, runtime });
        if (file.format === "package") {
          checkPackagePlace(name, first.module.packageSignature().device, place);
        }
        return place;
      },
      open: (place) => openModule(runtime, file, place),
      run: {
        name,
        plan: createRunPlan(config, signatureOfConfig(config, naming)),
        naming,
        switches: switchBits(settings.switches),
        gate: this.#gate,
        now,
        countBatchRetry: () => countBatchRetry(name, version),
      },
    });
  }

  #applySettings(name: string, settings: TorchSettings, runtime: TorchRuntime): void {
    const { log } = this.#context;
    for (const line of settings.words) log.info(line);
    if (settings.switches.cacheCleaning && !runtime.hasCacheCleaning) {
      log.warning(
        `parameter 'ENABLE_CACHE_CLEANING' of model '${name}' has no effect: libtorch ` +
          `${runtime.version} is older than 2.10`,
      );
    }
    this.#threads.apply(name, settings.threads, (threads) => runtime.setThreads(threads));
  }

  #openRuntime(): Promise<TorchRuntime> {
    this.#opening ??= this.#start().catch((error) => {
      // What was missing may be there for the next model.
      this.#opening = undefined;
      throw ServerError.from(error, "UNAVAILABLE");
    });
    return this.#opening;
  }

  async #start(): Promise<TorchRuntime> {
    const { settings, log } = this.#context;
    const torch = locateTorch(settings.get("library"));
    const shim = await buildShim(torch, settings.get("cache") ?? defaultShimFolder());
    const runtime = new TorchRuntime(shim);
    log.info(`PyTorch ${runtime.version} from ${torch.libraries}`);
    return runtime;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

function formatOf({ name, platform, defaultModelFilename }: ModelConfig): ModelFile["format"] {
  if (platform === "torch_aoti") return "package";
  if (platform === "" && defaultModelFilename.endsWith(".pt2")) return "package";
  if (platform === "" || platform === "pytorch_libtorch") return "script";
  throw new ServerError(
    "UNSUPPORTED",
    `model '${name}' has platform '${platform}', backend 'pytorch' serves 'pytorch_libtorch' ` +
      `(TorchScript, model.pt) and 'torch_aoti' (AOTInductor packages, model.pt2)`,
  );
}

function withFileName(config: ModelConfig, format: ModelFile["format"]): ModelConfig {
  if (config.defaultModelFilename !== "") return config;
  return { ...config, defaultModelFilename: format === "package" ? "model.pt2" : "model.pt" };
}

function namesOf(
  config: ModelConfig,
  { format, modelName }: ModelFile,
  { module, place }: { readonly place: TorchPlace; readonly module: TorchModule },
): Naming {
  if (format === "script") return resolveNames(config, module.scriptSignature());
  const signature = module.packageSignature();
  checkPackagePlace(modelName, signature.device, place);
  return resolvePackageNames(config, signature);
}

function withoutCuda({ libraries }: TorchFolders): string {
  return `libtorch in '${libraries}' is built without CUDA, one with it has libtorch_cuda.so`;
}
