import type { Datatype } from "../../proto/datatype.ts";
import type {
  InferRequest,
  ModelConfigObject,
  ModelContext,
  ModelTensor,
  OutputTensor,
  TensorOf,
} from "./model_api.ts";
import { elementBytes, viewArray } from "./tensor_arrays.ts";
import type { ModelCalls } from "./worker_calls.ts";
import { callerPlace, codedError } from "./worker_errors.ts";
import { createModelMetrics } from "./worker_metrics.ts";
import type { WorkerPort } from "./worker_port.ts";
import type { InstanceFacts } from "./worker_protocol.ts";
import { concatTensors, splitTensor } from "./worker_rows.ts";

/** What a model gets from the server. */
export function createModelContext(
  facts: InstanceFacts,
  config: ModelConfigObject,
  { port, calls }: { readonly port: WorkerPort; readonly calls: ModelCalls },
): ModelContext {
  const { modelName, modelVersion, instanceName, instanceKind, deviceId } = facts;
  const parameters = Object.fromEntries(
    Object.entries(config.parameters ?? {}).map(([key, value]) => [key, value.string_value]),
  );
  return {
    modelName,
    modelVersion,
    instanceName,
    instanceKind,
    deviceId,
    modelDirectory: facts.modelDirectory,
    versionDirectory: facts.versionDirectory,
    config,
    parameters,
    log: createLog(port),
    metrics: createModelMetrics(port),
    error: codedError,
    infer: (name, call) => calls.infer(name, call),
    inferStream: (name, call) => calls.inferStream(name, call),
    loadModel: (name, options = {}) => loadModel(port, name, options),
    async unloadModel(name, { unloadDependents = false } = {}) {
      await port.ask({ what: "unloadModel", name, unloadDependents });
    },
    isModelReady: async (name, version = "") =>
      await port.ask({ what: "isModelReady", name, version }) as boolean,
    concat: (requests, name, datatype) => concatInputs(requests, name, datatype),
    split: (tensor: OutputTensor, requests) =>
      splitTensor(tensor, requests.map(({ batchSize }) => batchSize)),
    alloc: (datatype, shape) => allocate(port, datatype, shape),
  };
}

function createLog(port: WorkerPort): ModelContext["log"] {
  const write = (level: "info" | "warning" | "error" | "verbose") => (message: string) =>
    port.log(level, String(message), callerPlace(new Error().stack ?? ""));
  return {
    info: write("info"),
    warning: write("warning"),
    error: write("error"),
    verbose: write("verbose"),
  };
}

async function loadModel(
  port: WorkerPort,
  name: string,
  { config, files = {} }: Parameters<ModelContext["loadModel"]>[1] & object,
): Promise<void> {
  const parameters: Record<string, string | Uint8Array> = { ...files };
  if (config !== undefined) parameters.config = config;
  await port.ask({ what: "loadModel", name, parameters });
}

function concatInputs<Type extends Datatype>(
  requests: readonly InferRequest[],
  name: string,
  datatype: Type,
): TensorOf<Type> {
  const tensors = requests.map((request) => request.input(name, datatype) as ModelTensor);
  return concatTensors(tensors, name) as TensorOf<Type>;
}

function allocate<Type extends Exclude<Datatype, "BYTES">>(
  port: WorkerPort,
  datatype: Type,
  shape: readonly number[],
): TensorOf<Type> {
  const count = shape.reduce((product, dim) => product * dim, 1);
  if (!Number.isSafeInteger(count) || count < 0) {
    throw codedError("INVALID_ARG", `a tensor cannot have the shape [${shape.join(",")}]`);
  }
  const memory = new SharedArrayBuffer(count * elementBytes(datatype));
  if (memory.byteLength > 0) port.frames.lend(memory);
  return { datatype, shape, data: viewArray(datatype, new Uint8Array(memory)) };
}
