import type {
  ModelConfig,
  ModelSequenceBatching_InitialState,
} from "../../proto/gen/model_config_pb.ts";
import { datatypeOfConfig } from "../../proto/datatype.ts";
import type { ConfigIssue } from "../../proto/model_config.ts";
import { isPathInside } from "../../proto/model_config_path.ts";
import { ServerError } from "../../proto/status.ts";
import { tensorByteSize } from "../../proto/tensor.ts";
import { fileError, openRegularFile } from "./model_repository_files.ts";

/** Where a model's files are. */
export interface StateSource {
  readonly name: string;
  /** Absolute path of `<repository>/<model>`. */
  readonly modelDirectory: string;
}

/** Checks that the files with initial states are there and long enough (config.md §6.5). */
export async function checkStateFiles(
  config: ModelConfig,
  source: StateSource,
): Promise<ConfigIssue[]> {
  if (config.schedulingChoice.case !== "sequenceBatching") return [];
  const issues: ConfigIssue[] = [];
  for (const [index, state] of config.schedulingChoice.value.state.entries()) {
    const [initial] = state.initialState;
    // Paths that lead outside are reported by checkModelIo.
    if (initial?.stateData.case !== "dataFile" || !isPathInside(initial.stateData.value)) continue;
    const path = `sequence_batching.state[${index}].initial_state[0].data_file`;
    try {
      await checkFile(initial, initial.stateData.value, source);
    } catch (reason) {
      const { message, code } = ServerError.from(reason);
      issues.push({ path, message, code });
    }
  }
  return issues;
}

async function checkFile(
  initial: ModelSequenceBatching_InitialState,
  fileName: string,
  source: StateSource,
): Promise<void> {
  const file = {
    path: `${source.modelDirectory}/initial_state/${fileName}`,
    name: `${source.name}/initial_state/${fileName.replace(/^\/+/, "")}`,
    root: source.modelDirectory,
  };
  using handle = await openRegularFile(file);
  if (handle === undefined) throw fileError(file, "No such file or directory");
  const expected = expectedByteSize(initial);
  const { size } = await handle.stat();
  if (expected === undefined || size >= expected) return;
  throw new ServerError(
    "INVALID_ARG",
    `initial_state setting expects ${expected} bytes, but the data provided from ${fileName}only ` +
      `has ${size} bytes.`,
  );
}

/** Bytes of the state of one sequence; undefined where that depends on the elements. */
function expectedByteSize(initial: ModelSequenceBatching_InitialState): number | undefined {
  const datatype = datatypeOfConfig(initial.dataType);
  const shape = initial.dims.map(Number);
  if (datatype === undefined || shape.some((dim) => dim < 0)) return undefined;
  return tensorByteSize(datatype, shape, `initial state '${initial.name}'`);
}
