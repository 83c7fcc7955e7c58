import { clone, create, type MessageInitShape } from "@bufbuild/protobuf";
import type {
  Backend,
  ExecuteRequest,
  ModelInstance,
  ModelSource,
} from "../../backends/backend.ts";
import { DataType, type ModelConfig, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import type { InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { Engine, type EngineParts } from "./engine.ts";
import { FakeClock } from "./fake_clock.ts";
import type { Log } from "./log.ts";
import type { WatchedRepository } from "./model_repositories.ts";
import type { RepositoryModel } from "./model_repository.ts";
import type { ModelLook, RepositoryLook } from "./model_repository_look.ts";
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "./options.ts";
import {
  type FakeExecution,
  FakeInstance,
  type FakeInstanceOptions,
} from "./scheduler/fake_instance.ts";

/** A model of the in-memory repository. */
export interface FakeModel {
  readonly config?: MessageInitShape<typeof ModelConfigSchema>;
  /** `[1]` when absent. */
  readonly versions?: readonly number[];
  /** The directory cannot be read as a model. */
  readonly readError?: ServerError;
  /** Loading a version fails as long as this returns an error. */
  readonly loadError?: (version: number) => unknown;
  readonly loadMs?: number;
  readonly executeMs?: number;
  readonly outcome?: FakeInstanceOptions["outcome"];
  /** See `RepositoryModel.stamp`. */
  readonly stamp?: string;
  /** What each version's files are like; absent = versions are never told apart. */
  readonly files?: Readonly<Record<number, string>>;
  /** See `RepositoryModel.versionLabels`. */
  readonly versionLabels?: ReadonlyMap<string, number>;
  /** More than one of them has the model. */
  readonly repositories?: readonly string[];
  /** Why polling cannot read its files. */
  readonly unreadable?: string;
  /** Instances fail to be created as long as this returns an error. */
  readonly instanceError?: (name: string) => unknown;
  /** What each instance waits for before it is there. */
  readonly initialize?: () => Promise<unknown>;
  /** What each instance says of its readiness; absent = it has no say. */
  readonly isReady?: ModelInstance["isReady"];
  /** Which memory of clients the instances work on where it is. */
  readonly memoryUse?: ModelInstance["memoryUse"];
}

/** An engine over an in-memory repository and a fake backend, in virtual time. */
export class EngineFixture {
  readonly clock = new FakeClock();
  readonly executions: FakeExecution[] = [];
  readonly lines: string[] = [];
  readonly models: Map<string, FakeModel>;
  readonly engine: Engine;
  /** Configurations that came with load requests. */
  readonly overrides: string[] = [];
  /** Repositories that cannot be listed. */
  lost = new Map<string, string>();
  /** Instances that were created and not disposed. */
  readonly instances = new Set<FakeInstance>();
  /** Versions that a backend holds open, `name:version`. */
  readonly open = new Set<string>();
  /** Most versions that were being loaded at the same time. */
  mostLoading = 0;
  isBackendDisposed = false;
  #loading = 0;

  constructor(
    models: Readonly<Record<string, FakeModel>>,
    options: Partial<ServerOptions> = {},
    parts: Partial<EngineParts> = {},
  ) {
    this.models = new Map(Object.entries(models));
    this.engine = new Engine({ ...DEFAULT_SERVER_OPTIONS, ...options }, {
      clock: this.clock,
      log: this.#log(),
      repository: this.#repository(),
      completeConfig: () => Promise.resolve(undefined),
      openBackend: (name) => name === "fake" ? Promise.resolve(this.#backend()) : undefined,
      backendNames: ["fake"],
      statistics: {},
      delaySchedulerCount: 0,
      ...parts,
    });
  }

  #log(): Log {
    const note = (message: string) => void this.lines.push(message);
    return { info: note, warning: note, error: note, verbose: (_level, message) => note(message) };
  }

  #look(): RepositoryLook {
    const models = [...this.models].map(([name, model]): [string, ModelLook] => [
      name,
      {
        repositories: model.repositories ?? ["/models"],
        stamp: model.unreadable === undefined ? model.stamp ?? "" : undefined,
        reason: model.unreadable ?? "",
      },
    ]);
    return { models: new Map(models), lost: this.lost };
  }

  #repository(): WatchedRepository {
    return {
      look: () => Promise.resolve(this.#look()),
      list: () => Promise.resolve([...this.models.keys()].sort()),
      read: (name, override) => {
        if (override !== undefined) this.overrides.push(override.config);
        const model = this.models.get(name);
        if (model === undefined) {
          return Promise.reject(
            new ServerError(
              "NOT_FOUND",
              `failed to load '${name}', failed to poll from model repository`,
            ),
          );
        }
        if (model.readError !== undefined) return Promise.reject(model.readError);
        const read: RepositoryModel = {
          name,
          directory: `/models/${name}`,
          repository: "/models",
          versions: model.versions ?? [1],
          config: createFakeConfig(name, model.config),
          positions: { fileName: `${name}/config.pbtxt`, byPath: new Map() },
          stamp: override === undefined ? model.stamp : undefined,
          versionLabels: model.versionLabels,
          files: model.files === undefined ? undefined : {
            versions: new Map(
              Object.entries(model.files).map(([key, text]) => [Number(key), text]),
            ),
            others: "",
            config: model.stamp ?? "",
          },
        };
        return Promise.resolve(read);
      },
    };
  }

  #backend(): Backend {
    return {
      name: "fake",
      preference: { kind: "KIND_CPU", count: 1 },
      autoComplete: () => Promise.resolve(),
      openModel: (source) => this.#openModel(source),
      [Symbol.asyncDispose]: () => {
        this.isBackendDisposed = true;
        return Promise.resolve();
      },
    };
  }

  async #openModel({ name, version }: ModelSource) {
    const model = this.models.get(name)!;
    this.mostLoading = Math.max(this.mostLoading, ++this.#loading);
    await new Promise<void>((resolve) => void this.clock.setTimer(model.loadMs ?? 0, resolve));
    this.#loading--;
    const error = model.loadError?.(version);
    if (error !== undefined) throw error;
    const key = `${name}:${version}`;
    this.open.add(key);
    return {
      createInstance: ({ name: instance }: { name: string }) =>
        this.#createInstance(instance, this.models.get(name) ?? model),
      [Symbol.asyncDispose]: () => {
        this.open.delete(key);
        return Promise.resolve();
      },
    };
  }

  async #createInstance(name: string, model: FakeModel): Promise<FakeInstance> {
    const error = model.instanceError?.(name);
    if (error !== undefined) throw error;
    if (model.initialize !== undefined) await model.initialize();
    const instance = new FakeInstance(name, {
      clock: this.clock,
      executions: this.executions,
      executeMs: [model.executeMs ?? 0],
      outcome: model.outcome ?? echo,
    });
    if (model.isReady !== undefined) Object.assign(instance, { isReady: model.isReady });
    if (model.memoryUse !== undefined) Object.assign(instance, { memoryUse: model.memoryUse });
    this.instances.add(instance);
    const dispose = instance[Symbol.asyncDispose].bind(instance);
    instance[Symbol.asyncDispose] = async () => {
      await dispose();
      this.instances.delete(instance);
    };
    return instance;
  }

  /** Starts while virtual time passes, so that loads can take some. */
  async start(durationMs = 10_000): Promise<Awaited<ReturnType<Engine["start"]>>> {
    const started = this.engine.start();
    await this.clock.advance(durationMs);
    return await started;
  }
}

function echo({ inputs }: ExecuteRequest) {
  return { outputs: inputs.map((input) => ({ ...input, name: "OUT" })) };
}

/** A complete configuration of a model `IN` → `OUT`, FP32 `[-1]`, changed by `change`. */
export function createFakeConfig(
  name: string,
  change: MessageInitShape<typeof ModelConfigSchema> = {},
): ModelConfig {
  const config = create(ModelConfigSchema, {
    backend: "fake",
    maxBatchSize: 4,
    input: [{ name: "IN", dataType: DataType.TYPE_FP32, dims: [-1n] }],
    output: [{ name: "OUT", dataType: DataType.TYPE_FP32, dims: [-1n] }],
    instanceGroup: [{ name, count: 1 }],
    ...change,
    name,
  });
  return clone(ModelConfigSchema, config);
}

/** A request for a model of `createFakeConfig`, one FP32 per row. */
export function inferRequest(
  modelName: string,
  change: Partial<InferRequest> & { readonly rows?: number } = {},
): InferRequest {
  const { rows = 1, ...rest } = change;
  return {
    modelName,
    modelVersion: "",
    id: "",
    correlationId: 0n,
    sequenceStart: false,
    sequenceEnd: false,
    priority: 0,
    timeoutUs: 0,
    parameters: {},
    inputs: [{
      name: "IN",
      datatype: "FP32",
      shape: [rows, 1],
      data: new Uint8Array(new Float32Array(rows).fill(1).buffer),
    }],
    outputs: [],
    ...rest,
  };
}
