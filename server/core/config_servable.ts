import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { configError, type ConfigIssue, type ConfigPositions } from "../../proto/model_config.ts";

/** Fields that a model can do without only if they are not set, and what each is about. */
const NEEDED_FEATURES: readonly {
  readonly path: string;
  readonly feature: string;
  readonly isNeeded: (config: ModelConfig) => boolean;
}[] = [];

/** True for a configuration that needs nothing this server cannot do. */
export function isServable(config: ModelConfig): boolean {
  return !NEEDED_FEATURES.some((needed) => needed.isNeeded(config));
}

/**
 * Refuses a configuration that needs something at run time that this server cannot do: it must not be served as if
 * the field were not there. Called after all other checks, so that what is wrong anyway is told in the usual words.
 * @throws ServerError UNSUPPORTED that names every such field.
 */
export function checkServable(config: ModelConfig, positions?: ConfigPositions): void {
  const issues = NEEDED_FEATURES
    .filter((needed) => needed.isNeeded(config))
    .map((needed): ConfigIssue => ({
      path: needed.path,
      message: `model '${config.name}' needs '${needed.path}', but this server does not support ` +
        `${needed.feature} yet`,
      code: "UNSUPPORTED",
    }));
  if (issues.length > 0) throw configError(issues, positions);
}
