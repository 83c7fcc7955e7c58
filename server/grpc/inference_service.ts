import type { DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import type { InferenceApi } from "../core/inference_api.ts";
import type { ApiCategory } from "../core/options_frontend.ts";
import type {
  GRPCInferenceService,
  ModelRepositoryParameter,
} from "../../proto/gen/grpc_service_pb.ts";
import type { Health } from "../../proto/gen/health_pb.ts";
import type { TensorDescription } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { sharedMemoryCalls } from "./shared_memory_calls.ts";
import { logSettings, traceSetting } from "./trace_log_settings.ts";

type UnaryMethods<Methods> = {
  [
    Name in keyof Methods as Methods[Name] extends { methodKind: "unary" }
      ? Name extends "modelInfer" ? never : Name
      : never
  ]: Methods[Name] extends { input: infer Input; output: infer Output }
    ? Input extends DescMethodUnary["input"] ? Output extends DescMethodUnary["output"] ? (
          request: MessageShape<Input>,
        ) => MessageInitShape<Output> | Promise<MessageInitShape<Output>>
      : never
    : never
    : never;
};

/** Every unary call of the inference service but ModelInfer: what the lean gRPC layer and Connect both call. */
export type InferenceService = UnaryMethods<(typeof GRPCInferenceService)["method"]>;

/** The unary calls of the health service. */
export type HealthService = UnaryMethods<(typeof Health)["method"]>;

/** Restriction categories of the calls of the inference service, by method name. */
export const METHOD_CATEGORIES: Readonly<
  Record<keyof (typeof GRPCInferenceService)["method"], ApiCategory>
> = {
  serverLive: "health",
  serverReady: "health",
  modelReady: "health",
  serverMetadata: "metadata",
  modelMetadata: "metadata",
  modelInfer: "inference",
  modelStreamInfer: "inference",
  modelConfig: "model-config",
  modelStatistics: "statistics",
  repositoryIndex: "model-repository",
  repositoryModelLoad: "model-repository",
  repositoryModelUnload: "model-repository",
  systemSharedMemoryStatus: "shared-memory",
  systemSharedMemoryRegister: "shared-memory",
  systemSharedMemoryUnregister: "shared-memory",
  cudaSharedMemoryStatus: "shared-memory",
  cudaSharedMemoryRegister: "shared-memory",
  cudaSharedMemoryUnregister: "shared-memory",
  traceSetting: "trace",
  logSettings: "logging",
};

/** The unary calls on top of the facade (grpc.md §2.1). */
export function createInferenceService(api: InferenceApi): InferenceService {
  return {
    ...healthCalls(api),
    ...modelCalls(api),
    ...repositoryCalls(api),
    ...sharedMemoryCalls(api),
    traceSetting: (request) => traceSetting(api, request),
    logSettings: (request) => logSettings(api, request),
  };
}

/** The answer of health calls during shutdown. */
export function exiting(): ServerError {
  return new ServerError("UNAVAILABLE", "Server exiting");
}

function healthCalls(api: InferenceApi) {
  return {
    serverLive() {
      if (api.isExiting()) throw exiting();
      return { live: api.isLive() };
    },
    serverReady() {
      if (api.isExiting()) throw exiting();
      return { ready: api.isReady() };
    },
    modelReady: async ({ name, version }) => ({ ready: await isModelReady(api, name, version) }),
  } satisfies Partial<InferenceService>;
}

/** Of what is not served, clients are told `false`, as by Triton 2.51; newer ones answer with an error (grpc.md §2.1). */
async function isModelReady(api: InferenceApi, name: string, version: string): Promise<boolean> {
  try {
    return await api.isModelReady(name, version);
  } catch (reason) {
    const { code } = ServerError.from(reason);
    if (code === "NOT_FOUND" || code === "UNAVAILABLE") return false;
    throw reason;
  }
}

function modelCalls(api: InferenceApi) {
  return {
    serverMetadata() {
      const { name, version, extensions } = api.serverMetadata();
      return { name, version, extensions: [...extensions] };
    },
    modelMetadata({ name, version }) {
      const metadata = api.modelMetadata(name, version);
      return {
        name: metadata.name,
        versions: [...metadata.versions],
        platform: metadata.platform,
        inputs: metadata.inputs.map(tensorMetadata),
        outputs: metadata.outputs.map(tensorMetadata),
      };
    },
    modelConfig: ({ name, version }) => ({ config: api.modelConfig(name, version) }),
    modelStatistics: ({ name, version }) => ({ modelStats: api.modelStatistics(name, version) }),
  } satisfies Partial<InferenceService>;
}

function tensorMetadata(tensor: TensorDescription) {
  return { name: tensor.name, datatype: tensor.datatype, shape: tensor.shape.map(BigInt) };
}

function checkRepositoryName(name: string): void {
  if (name === "") return;
  throw new ServerError("UNSUPPORTED", "'repository_name' specification is not supported");
}

function repositoryCalls(api: InferenceApi) {
  return {
    async repositoryIndex(request) {
      checkRepositoryName(request.repositoryName);
      const entries = await api.repositoryIndex(request.ready);
      const models = entries.map((entry) => ({
        name: entry.name,
        version: entry.version ?? "",
        state: entry.state ?? "",
        reason: entry.reason ?? "",
      }));
      return { models };
    },
    async repositoryModelLoad(request) {
      checkRepositoryName(request.repositoryName);
      await api.loadModel(request.modelName, loadParameters(request.parameters));
      return {};
    },
    async repositoryModelUnload(request) {
      checkRepositoryName(request.repositoryName);
      const choice = request.parameters.unload_dependents?.parameterChoice;
      if (choice !== undefined && choice.case !== "boolParam") {
        throw new ServerError(
          "INVALID_ARG",
          "invalid value type for 'unload_dependents' parameter, expected bool_param.",
        );
      }
      await api.unloadModel(request.modelName, { unloadDependents: choice?.value ?? false });
      return {};
    },
  } satisfies Partial<InferenceService>;
}

/** Load parameters of grpc.md §2.2: `config` is a text, `file:<path>` are bytes. */
function loadParameters(
  parameters: Readonly<Record<string, ModelRepositoryParameter>>,
): Record<string, string | Uint8Array> {
  const result: Record<string, string | Uint8Array> = Object.create(null);
  for (const [key, { parameterChoice: choice }] of Object.entries(parameters)) {
    const expected = key === "config"
      ? "string_param"
      : key.startsWith("file:")
      ? "bytes_param"
      : undefined;
    if (expected === undefined) {
      throw new ServerError("INVALID_ARG", `unrecognized load parameter '${key}'.`);
    }
    const { case: kind, value } = choice;
    if (kind === "stringParam" && expected === "string_param") result[key] = value;
    else if (kind === "bytesParam" && expected === "bytes_param") result[key] = value;
    else {
      throw new ServerError(
        "INVALID_ARG",
        `invalid value type for load parameter '${key}', expected ${expected}.`,
      );
    }
  }
  return result;
}
