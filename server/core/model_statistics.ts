import type { ModelStatistics } from "../../proto/gen/grpc_service_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type { ModelRegistry } from "./model_registry.ts";

/**
 * The statistics of READY versions; `name` "" = of all models, `version` "" = of all versions.
 * @throws ServerError INVALID_ARG for what is not ready.
 */
export function readStatistics(
  registry: ModelRegistry,
  name: string,
  version: string,
): ModelStatistics[] {
  if (name === "") {
    return registry.entries()
      .flatMap((entry) => entry.ready())
      .map(({ statistics }) => statistics.toMessage());
  }
  const ready = registry.find(name)?.ready() ?? [];
  const number = version === "" ? undefined : registry.parseVersion(name, version);
  if (ready.length === 0) {
    throw new ServerError("INVALID_ARG", `requested model '${name}' is not available`);
  }
  if (number === undefined) return ready.map(({ statistics }) => statistics.toMessage());
  const model = ready.find((candidate) => candidate.version === number);
  if (model !== undefined) return [model.statistics.toMessage()];
  throw new ServerError(
    "INVALID_ARG",
    `requested model version is not available for model '${name}'`,
  );
}
