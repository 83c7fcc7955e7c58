import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { ConfigIssue } from "../../proto/model_config.ts";
import { isPathInside } from "../../proto/model_config_path.ts";
import { ServerError } from "../../proto/status.ts";
import { readInitialState, type StateSource } from "./scheduler/sequence_state_initial.ts";

/** Checks that every state can have its first value: sizes, and the files they come from (config.md §6.5). */
export async function checkStateFiles(
  config: ModelConfig,
  source: StateSource,
): Promise<ConfigIssue[]> {
  if (config.schedulingChoice.case !== "sequenceBatching") return [];
  const issues: ConfigIssue[] = [];
  for (const [index, state] of config.schedulingChoice.value.state.entries()) {
    const [initial] = state.initialState;
    const dims = (initial ?? state).dims;
    // Dimensions that cannot be, and paths that lead outside, are reported by checkModelIo.
    if (dims.some((dim) => dim < -1n)) continue;
    const data = initial?.stateData;
    if (data?.case === "dataFile" && !isPathInside(data.value)) continue;
    const path = `sequence_batching.state[${index}]`;
    try {
      await readInitialState(state, { isBatching: config.maxBatchSize > 0, ...source });
    } catch (reason) {
      const { message, code } = ServerError.from(reason);
      const field = data?.case === "dataFile" ? "initial_state[0].data_file" : "dims";
      issues.push({ path: `${path}.${field}`, message, code });
    }
  }
  return issues;
}
