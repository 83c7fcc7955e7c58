import type { ModelInstance } from "../../backends/backend.ts";
import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";

/** Which memory of clients the instances of a model work on where it is. */
export interface ClientMemory {
  /** Outputs are written to regions in memory of this machine. */
  readonly host: boolean;
  /** GPUs on which inputs and outputs may lie. */
  readonly cudaDeviceIds: ReadonlySet<number>;
}

/**
 * What the instances of a model say together; undefined = nothing, or what they read and write is kept beyond the
 * request: by the response cache, or as the state of a sequence.
 */
export function findClientMemory(
  { responseCache, schedulingChoice: { case: scheduler, value } }: ModelConfig,
  instances: readonly ModelInstance[],
): ClientMemory | undefined {
  if (responseCache?.enable) return undefined;
  if (scheduler === "sequenceBatching" && value.state.length > 0) return undefined;
  let host = false;
  const cudaDeviceIds = new Set<number>();
  for (const { memoryUse } of instances) {
    if (memoryUse === undefined) continue;
    if (memoryUse.host) host = true;
    if (memoryUse.cudaDeviceId !== undefined) cudaDeviceIds.add(memoryUse.cudaDeviceId);
  }
  return host || cudaDeviceIds.size > 0 ? { host, cudaDeviceIds } : undefined;
}
