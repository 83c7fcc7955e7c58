import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import { createCallGate } from "../../ffi/call_gate.ts";
import { ELEMENT_TYPE, ONNX_TYPE } from "../../ffi/onnxruntime/element_type.ts";
import type { SessionSignature, TensorSignature } from "../../ffi/onnxruntime/signature.ts";
import {
  buildShim,
  defaultShimFolder,
  locateTorch,
  TorchModule,
  TorchRuntime,
} from "../../ffi/pytorch/mod.ts";
import { datatypeOfConfig } from "../../proto/datatype.ts";
import type { Backend, BackendContext, BackendModel, ModelSource } from "../backend.ts";
import { createRunPlan } from "../onnx_run_plan.ts";
import { findModelFile } from "../onnx_model_file.ts";
import { checkTensors, resolveNames } from "./naming.ts";
import { TorchModel } from "./model.ts";
import { readTorchSettings } from "./settings.ts";

const MAX_RUNS_IN_FLIGHT = 16;
const NOT_AN_ARCHIVE = /PytorchStreamReader failed|constants\.pkl|code\/|file not found: archive/;

/** TorchScript models through a shim that is built against the libtorch of this machine. */
export class PyTorchBackend implements Backend {
  readonly name = "pytorch";
  readonly preference = { kind: "KIND_CPU", count: 1 } as const;
  readonly #context: BackendContext;
  readonly #gate = createCallGate(MAX_RUNS_IN_FLIGHT);
  #opening: Promise<TorchRuntime> | undefined;

  constructor(context: BackendContext) {
    this.#context = context;
  }

  /** A TorchScript file tells nothing that could complete a configuration. */
  autoComplete(): Promise<void> {
    return Promise.resolve();
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    const { config, name } = source;
    if (config.platform !== "" && config.platform !== "pytorch_libtorch") {
      throw new ServerError(
        "UNSUPPORTED",
        `model '${name}' has platform '${config.platform}', which cannot be served: export it with ` +
          `torch.jit.trace or torch.jit.script for platform 'pytorch_libtorch', or to ONNX`,
      );
    }
    checkTensors(config);
    const settings = readTorchSettings(source);
    const path = await findModelFile(source);
    const runtime = await this.#openRuntime();
    this.#setThreads(runtime, source.name, settings.threads);
    runtime.setJit(settings.jit);
    const module = await loadModule(runtime, path, name);
    try {
      const naming = resolveNames(config, module);
      return new TorchModel({
        name,
        module,
        plan: createRunPlan(config, signatureOf(config)),
        naming,
        options: { ...settings, inputsAreDict: naming.inputsAreDict },
        gate: this.#gate,
        now: this.#context.now,
        countBatchRetry: () => this.#context.countBatchRetry(name, source.version),
      });
    } catch (error) {
      module[Symbol.dispose]();
      throw error;
    }
  }

  /** Threads between operators can be set only before the first run of the process. */
  #setThreads(
    runtime: TorchRuntime,
    modelName: string,
    threads: { readonly intra: number; readonly inter: number },
  ): void {
    try {
      runtime.setThreads(threads);
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      this.#context.log.warning(`threads of model '${modelName}' stay as they are: ${text}`);
    }
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

async function loadModule(
  runtime: TorchRuntime,
  path: string,
  modelName: string,
): Promise<TorchModule> {
  try {
    return await TorchModule.open(runtime, path);
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    const hint = NOT_AN_ARCHIVE.test(text)
      ? "; a TorchScript file is made by torch.jit.trace(...).save or torch.jit.script(...).save, " +
        "what torch.save writes (a pickle of weights or of a module) cannot be served"
      : "";
    throw new ServerError(
      "INTERNAL",
      `failed to load model '${modelName}': ${text.replace(/\.$/, "")}${hint}`,
      { cause: error },
    );
  }
}

/** What the configuration says, in the place of what a model would tell. */
function signatureOf(config: ModelConfig): SessionSignature {
  const describe = (
    each: ModelConfig["input"][number] | ModelConfig["output"][number],
  ): TensorSignature => {
    const dims = (each.reshape?.shape ?? each.dims).map(Number);
    const shape = config.maxBatchSize > 0 ? [-1, ...dims] : dims;
    const datatype = datatypeOfConfig(each.dataType) ?? "FP32";
    return {
      name: each.name,
      onnxType: ONNX_TYPE.TENSOR,
      elementType: ELEMENT_TYPE[ELEMENT_NAME_OF[datatype]],
      dims: shape,
      symbols: shape.map(() => ""),
    };
  };
  return {
    inputs: config.input.map(describe),
    outputs: config.output.map(describe),
    overridableInitializers: [],
  };
}

const ELEMENT_NAME_OF = {
  BOOL: "BOOL",
  UINT8: "UINT8",
  UINT16: "UINT16",
  UINT32: "UINT32",
  UINT64: "UINT64",
  INT8: "INT8",
  INT16: "INT16",
  INT32: "INT32",
  INT64: "INT64",
  FP16: "FLOAT16",
  FP32: "FLOAT",
  FP64: "DOUBLE",
  BYTES: "STRING",
  BF16: "BFLOAT16",
} as const;
