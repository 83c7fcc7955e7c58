import type { ModelConfig } from "../proto/gen/model_config_pb.ts";
import { ServerError } from "../proto/status.ts";

/**
 * A number among the `parameters` of a configuration, where all values are strings; `fallback` when it is absent or
 * empty.
 * @throws ServerError INVALID_ARG naming the parameter when its value is no number from 0 on.
 */
export function readNumberParameter(config: ModelConfig, key: string, fallback = 0): number {
  const text = config.parameters[key]?.stringValue;
  if (text === undefined || text === "") return fallback;
  const value = Number(text);
  if (Number.isFinite(value) && value >= 0) return value;
  throw new ServerError(
    "INVALID_ARG",
    `parameter '${key}' of model '${config.name}' must be a number from 0 on, got '${text}'`,
  );
}

/** The same for a whole number. */
export function readCountParameter(config: ModelConfig, key: string, fallback = 0): number {
  const value = readNumberParameter(config, key, fallback);
  if (Number.isSafeInteger(value)) return value;
  throw new ServerError(
    "INVALID_ARG",
    `parameter '${key}' of model '${config.name}' must be a whole number from 0 on, got '${value}'`,
  );
}
