import { formatModelConfigJson, parseModelConfigJson } from "../../proto/model_config_json.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type {
  Backend,
  BackendContext,
  BackendModel,
  InstancePlacement,
  ModelSource,
} from "../backend.ts";
import { TypeScriptInstance } from "./instance.ts";
import { type ModelSettings, readModelSettings } from "./model_settings.ts";
import { within } from "./within.ts";
import { canRestrictWorkers } from "./worker_permissions.ts";
import { startModelWorker, WorkerLink } from "./worker_link.ts";
import type { InstanceFacts } from "./worker_protocol.ts";

/** Models in TypeScript or JavaScript, each instance in a Worker of its own (python-backend.md §B7). */
export class TypeScriptBackend implements Backend {
  readonly name = "typescript";
  readonly preference = { kind: "KIND_CPU", count: 1 } as const;
  readonly #context: BackendContext;
  #canRestrict: boolean | undefined;

  constructor(context: BackendContext) {
    this.#context = context;
  }

  async autoComplete(source: ModelSource): Promise<void> {
    const settings = await this.#readSettings(source);
    const link = new WorkerLink(startModelWorker(settings.permissions), {
      onFrame: (frame) => frame.release(),
      onMessage: () => {},
      onEnd: () => {},
    });
    try {
      const config = formatModelConfigJson(source.config);
      const { file, initializeTimeoutMs } = settings;
      const asked = link.ask({ what: "autoComplete", file, config });
      const completed = await within(asked, initializeTimeoutMs, () => {
        const text = `autoCompleteConfig() took longer than ${initializeTimeoutMs / 1000} s`;
        return new ServerError("INTERNAL", text);
      });
      if (completed !== config) takeOver(source.config, completed as string);
    } finally {
      link.end("it has done its work");
    }
  }

  async openModel(source: ModelSource): Promise<BackendModel> {
    const settings = await this.#readSettings(source);
    const config = formatModelConfigJson(source.config);
    return {
      createInstance: (placement) =>
        TypeScriptInstance.create({
          placement,
          context: this.#context,
          settings,
          facts: factsOf(source, { placement, config, maxStreams: settings.maxStreams }),
        }),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  }

  async #readSettings(source: ModelSource): Promise<ModelSettings> {
    const settings = await readModelSettings(source, this.#context.settings);
    if (settings.permissions === "inherit") return settings;
    this.#canRestrict ??= canRestrictWorkers();
    if (this.#canRestrict) return settings;
    throw new ServerError(
      "UNAVAILABLE",
      "models in TypeScript run with permissions of their own, which needs the program to be " +
        'started with --unstable-worker-options (or "unstable": ["worker-options"] in its ' +
        "deno.json); --backend-config=typescript,permissions=inherit gives them all that the " +
        "server may do instead",
    );
  }

  [Symbol.asyncDispose](): Promise<void> {
    return Promise.resolve();
  }
}

function factsOf(
  source: ModelSource,
  { placement, config, maxStreams }: {
    readonly placement: InstancePlacement;
    readonly config: string;
    readonly maxStreams: number;
  },
): InstanceFacts {
  return {
    modelName: source.name,
    modelVersion: String(source.version),
    instanceName: placement.name,
    instanceKind: placement.kind.slice("KIND_".length) as InstanceFacts["instanceKind"],
    deviceId: placement.deviceId,
    modelDirectory: source.modelDirectory,
    versionDirectory: source.versionDirectory,
    config,
    maxStreams,
  };
}

/** Takes over what a model may complete (python-backend.md §A4). @throws ServerError for what is no configuration. */
function takeOver(config: ModelConfig, json: string): void {
  const { config: completed, issues } = parseModelConfigJson(json);
  const [issue] = issues;
  if (issue !== undefined) {
    throw new ServerError(
      "INVALID_ARG",
      `autoCompleteConfig() made a configuration that cannot be read: ${issue.path}: ` +
        issue.message,
    );
  }
  config.maxBatchSize = completed.maxBatchSize;
  config.input = completed.input;
  config.output = completed.output;
  if (config.schedulingChoice.case === undefined) {
    config.schedulingChoice = completed.schedulingChoice;
  }
  if (completed.modelTransactionPolicy !== undefined) {
    config.modelTransactionPolicy = completed.modelTransactionPolicy;
  }
}
