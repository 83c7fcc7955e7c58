import { dirname } from "node:path";
import { create } from "@bufbuild/protobuf";
import { executeRequest } from "../../backends/execute_request_fixture.ts";
import type {
  Backend,
  BackendContext,
  BackendModel,
  ExecuteRequest,
  InstancePlacement,
  ModelInstance,
  ModelSource,
} from "../../backends/backend.ts";
import { fakeHost } from "../../backends/model_host_fixture.ts";
import { openBackend } from "../../backends/registry.ts";
import { type Datatype, DATATYPES } from "../../proto/datatype.ts";
import { type ModelConfig, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import type { MessageInitShape } from "@bufbuild/protobuf";
import type { Tensor } from "../../proto/tensor.ts";

/** A configuration as literals; what is absent has its default. */
export type ConfigInit = Exclude<MessageInitShape<typeof ModelConfigSchema>, ModelConfig>;

export interface OpenOptions {
  /** Bytes of `1/model.onnx`. */
  readonly model?: Uint8Array;
  /** Further files of the version folder, by their paths in it. */
  readonly files?: Readonly<Record<string, Uint8Array>>;
  readonly config?: ConfigInit;
  readonly settings?: Readonly<Record<string, string>>;
  readonly instanceCount?: number;
  /** The backend, when it is not the one of the table. */
  readonly openBackend?: (context: BackendContext) => Backend;
  /** Where the instances run; the default is a CPU. */
  readonly placement?: Partial<InstancePlacement>;
}

/** An opened model with its instances; disposing it frees everything and removes the folder. */
export interface OpenedModel extends AsyncDisposable {
  readonly backend: Backend;
  readonly source: ModelSource;
  readonly model: BackendModel;
  readonly instance: ModelInstance;
  readonly instances: readonly ModelInstance[];
  /** Batches run again one by one so far. */
  readonly retryCount: () => number;
  /** A request with the rows of its first input; outputs default to all of the configuration. */
  request(inputs: readonly Tensor[], options?: Partial<ExecuteRequest>): ExecuteRequest;
}

/** Writes a model folder, completes its configuration, opens it, creates instances. */
export async function openInstance(name: string, options: OpenOptions = {}): Promise<OpenedModel> {
  const folder = await Deno.makeTempDir({ prefix: "nereid_" });
  const versionDirectory = `${folder}/1`;
  await Deno.mkdir(versionDirectory);
  const files = { ...options.files };
  if (options.model !== undefined) files["model.onnx"] = options.model;
  for (const [path, bytes] of Object.entries(files)) {
    await Deno.mkdir(dirname(`${versionDirectory}/${path}`), { recursive: true });
    await Deno.writeFile(`${versionDirectory}/${path}`, bytes);
  }
  let retries = 0;
  const context: BackendContext = {
    settings: new Map(Object.entries(options.settings ?? {})),
    log: { info() {}, warning() {}, error() {}, verbose() {} },
    now: () => performance.now(),
    countBatchRetry: () => retries++,
    host: fakeHost(),
  };
  const backend = options.openBackend?.(context) ?? await openBackend(name, context)!;
  const config = create(ModelConfigSchema, { name: "m", ...options.config });
  const source = { name: "m", version: 1, modelDirectory: folder, versionDirectory, config };
  let opening: BackendModel | undefined;
  try {
    await backend.autoComplete(source);
    const model = opening = await backend.openModel(source);
    const instances = await Promise.all(
      Array.from(
        { length: options.instanceCount ?? 1 },
        (_, index) =>
          model.createInstance({
            name: `m_${index}`,
            kind: "KIND_CPU",
            deviceId: 0,
            ...options.placement,
          }),
      ),
    );
    const outputs = config.output.map((output) => output.name);
    return {
      backend,
      source,
      model,
      instance: instances[0]!,
      instances,
      retryCount: () => retries,
      request: (inputs, overrides = {}) =>
        executeRequest({
          batchSize: config.maxBatchSize > 0 ? inputs[0]?.shape[0] ?? 1 : 1,
          inputs,
          outputs,
          ...overrides,
        }),
      async [Symbol.asyncDispose]() {
        for (const instance of instances) await instance[Symbol.asyncDispose]();
        await model[Symbol.asyncDispose]();
        await backend[Symbol.asyncDispose]();
        await Deno.remove(folder, { recursive: true });
      },
    };
  } catch (error) {
    await opening?.[Symbol.asyncDispose]();
    await backend[Symbol.asyncDispose]();
    await Deno.remove(folder, { recursive: true });
    throw error;
  }
}

/** A tensor with the numbers (or their little-endian bytes); zeros without them. */
export function tensor(
  name: string,
  datatype: Datatype,
  shape: readonly number[],
  values?: readonly number[] | Uint8Array,
): Tensor {
  const size = shape.reduce((product, dim) => product * dim, DATATYPES[datatype].byteSize);
  const data = values instanceof Uint8Array
    ? values
    : values === undefined
    ? new Uint8Array(size)
    : encode(datatype, values);
  return { name, datatype, shape, data };
}

function encode(datatype: Datatype, values: readonly number[]): Uint8Array {
  switch (datatype) {
    case "FP32":
      return new Uint8Array(Float32Array.from(values).buffer);
    case "INT32":
      return new Uint8Array(Int32Array.from(values).buffer);
    case "INT64":
      return new Uint8Array(BigInt64Array.from(values, BigInt).buffer);
    default:
      return Uint8Array.from(values);
  }
}

/** BYTES data of texts or byte strings. */
export function bytesData(elements: readonly (string | Uint8Array)[]): Uint8Array {
  const encoder = new TextEncoder();
  const parts = elements.map((each) => typeof each === "string" ? encoder.encode(each) : each);
  const data = new Uint8Array(parts.reduce((size, part) => size + 4 + part.length, 0));
  const view = new DataView(data.buffer);
  let offset = 0;
  for (const part of parts) {
    view.setUint32(offset, part.length, true);
    data.set(part, offset + 4);
    offset += 4 + part.length;
  }
  return data;
}

/** The numbers of an FP32 tensor. */
export function floats({ data }: Tensor): number[] {
  return [...new Float32Array(data.slice().buffer)];
}

/** The outputs of an outcome. @throws its error. */
export function outputsOf(outcome: unknown): readonly Tensor[] {
  const { error, outputs } = outcome as { error?: Error; outputs: readonly Tensor[] };
  if (error !== undefined) throw error;
  return outputs;
}
