import { toJson } from "@bufbuild/protobuf";
import type { ModelSource } from "../../backends/backend.ts";
import { type ModelConfig, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { ServerError, STATUS_TEXT, type StatusCode } from "../../proto/status.ts";
import type { BatchStrategyContext } from "./batch_strategy_api.ts";
import {
  BATCH_STRATEGY_FILE,
  findBatchStrategy,
  findNativeLibrary,
} from "./batch_strategy_file.ts";
import { importStrategy, type StrategyModule } from "./batch_strategy_module.ts";
import type { Clock } from "./clock.ts";
import type { Log } from "./log.ts";
import type { LoadedBatchStrategy } from "./scheduler/batch_strategy.ts";

/** Failures of one strategy are told no more often. */
const TELL_INTERVAL_MS = 10_000;

/** What loading a strategy works with. */
export interface BatchStrategyParts {
  readonly clock: Clock;
  readonly log: Log;
  /** Its subfolders are those of the backends; absent = there are none. */
  readonly backendDirectory?: string | undefined;
  /** The files of the model came with a load request. */
  readonly isUploaded: boolean;
}

/**
 * Loads the batching strategy of a model version, if it has one, as the reference loads a batching library: for every
 * scheduler but sequences, though only the dynamic batcher uses it.
 * @throws ServerError when it is broken.
 */
export async function loadBatchStrategy(
  source: ModelSource,
  parts: BatchStrategyParts,
): Promise<LoadedBatchStrategy | undefined> {
  const { config, name: model } = source;
  if (config.schedulingChoice.case === "sequenceBatching") return undefined;
  const file = await findBatchStrategy(source, parts.backendDirectory);
  if (file === undefined) {
    const library = await findNativeLibrary(source);
    if (library !== undefined) {
      parts.log.warning(
        `${library} is not used: native batching libraries are not supported, write ` +
          `${BATCH_STRATEGY_FILE} for model '${model}'`,
      );
    }
    return undefined;
  }
  if (file.isOfModel && parts.isUploaded) {
    throw new ServerError(
      "UNSUPPORTED",
      `custom batching strategy ${file.name} came with the load request: it would run with all ` +
        `rights of the server, so it is taken from the model repository only`,
    );
  }
  parts.log.info(`Loading custom batching strategy ${file.path} for model ${model}`);
  if (config.schedulingChoice.case !== "dynamicBatching") {
    const message = `custom batching strategy ${file.name} is not used: model '${model}' has no ` +
      `dynamic_batching`;
    parts.log.warning(message);
  }
  const fail = (code: StatusCode, what: string, cause: unknown) =>
    new ServerError(
      code,
      `failed to load custom batching strategy ${file.name} for model '${model}': ${what}`,
      { cause },
    );
  try {
    const module = await importStrategy(file, parts.clock);
    return initialize(module, source, { ...parts, fileName: file.name, fail });
  } catch (reason) {
    if (reason instanceof ServerError) throw fail(reason.code, reason.message, reason);
    throw reason;
  }
}

type Fail = (code: StatusCode, what: string, cause: unknown) => ServerError;

interface InitializeParts extends BatchStrategyParts {
  readonly fileName: string;
  readonly fail: Fail;
}

function initialize(
  { strategy, explain }: StrategyModule,
  source: ModelSource,
  { clock, log, fileName }: InitializeParts,
): LoadedBatchStrategy {
  let batcher: unknown;
  try {
    batcher = strategy.initialize?.(createContext(source, log));
    refusePromise(batcher, "initialize");
  } catch (reason) {
    throw new ServerError(codeOf(reason), explain(reason), { cause: reason });
  }
  const place = `custom batching strategy ${fileName} of model '${source.name}'`;
  const tell = createLimiter(clock, (text) => log.error(`${place}: ${text}`));
  return {
    start: () => strategy.start?.(batcher),
    includeRequest: (request, batch) => strategy.includeRequest(request, batch),
    finish: (batch, requests) => strategy.finish?.(batch, requests),
    tellFailure: (call, reason) => tell(() => `${call} failed: ${explain(reason)}`),
    [Symbol.dispose]: () => {
      try {
        refusePromise(strategy.finalize?.(batcher), "finalize");
      } catch (reason) {
        log.error(`${place}: finalize failed: ${explain(reason)}`);
      }
    },
  };
}

function createContext(source: ModelSource, log: Log): BatchStrategyContext {
  const { name, version, config } = source;
  return {
    modelName: name,
    modelVersion: String(version),
    maxBatchSize: config.maxBatchSize,
    parameters: plainParameters(config),
    config: toJson(ModelConfigSchema, config, {
      useProtoFieldName: true,
      alwaysEmitImplicit: true,
    }) as Record<string, unknown>,
    log: {
      info: (message) => log.info(String(message)),
      warning: (message) => log.warning(String(message)),
      error: (message) => log.error(String(message)),
      verbose: (message) => log.verbose(1, String(message)),
    },
  };
}

function plainParameters({ parameters }: ModelConfig): Record<string, string> {
  const entries = Object.entries(parameters).map(([key, { stringValue }]) => [key, stringValue]);
  return Object.fromEntries(entries);
}

function refusePromise(value: unknown, call: string): void {
  if (!(value instanceof Promise)) return;
  value.catch(() => {});
  throw new TypeError(`${call} returned a promise, and must return at once`);
}

function codeOf(reason: unknown): StatusCode {
  const code = reason instanceof Error && "code" in reason ? reason.code : undefined;
  return typeof code === "string" && code in STATUS_TEXT ? code as StatusCode : "INVALID_ARG";
}

/** Tells at most one text in each interval, with the number of those that were not told before. */
function createLimiter(
  clock: Clock,
  write: (text: string) => void,
): (text: () => string) => void {
  let nextMs = -Infinity;
  let untoldCount = 0;
  return (text) => {
    const nowMs = clock.now();
    if (nowMs < nextMs) {
      untoldCount++;
      return;
    }
    nextMs = nowMs + TELL_INTERVAL_MS;
    const more = untoldCount === 0 ? "" : ` (and ${untoldCount} failures more since the last line)`;
    untoldCount = 0;
    write(text() + more);
  };
}
