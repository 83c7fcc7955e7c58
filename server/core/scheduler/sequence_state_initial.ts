import { type Datatype, datatypeOfConfig } from "../../../proto/datatype.ts";
import type { ModelSequenceBatching_State } from "../../../proto/gen/model_config_pb.ts";
import { isPathInside } from "../../../proto/model_config_path.ts";
import { ServerError } from "../../../proto/status.ts";
import { elementCount, formatShape, type Tensor, tensorByteSize } from "../../../proto/tensor.ts";
import { fileError, openRegularFile, readBoundedFile } from "../model_repository_files.ts";

/** A state starts with no more bytes than this. */
const STATE_BYTE_SIZE_MAX = 1024 * 1024 * 1024;
/** Each BYTES element begins with its length. */
const LENGTH_BYTES = 4;

/** Where a model's files are. */
export interface StateSource {
  /** The model. */
  readonly name: string;
  /** Absolute path of `<repository>/<model>`. */
  readonly modelDirectory: string;
}

/** The state whose first value is wanted. */
interface StateTarget extends StateSource {
  readonly inputName: string;
  readonly datatype: Datatype;
  /** With the batch dimension where the model batches. */
  readonly shape: readonly number[];
}

/**
 * The value of a state at the start of each sequence: zeros, or empty strings, or the file
 * `<model>/initial_state/<data_file>` (scheduling.md §3.6); of a longer file the first bytes. Undefined for a state
 * without a known datatype.
 * @throws ServerError naming the file, or the state, when that cannot be read or is too large.
 */
export async function readInitialState(
  state: ModelSequenceBatching_State,
  source: StateSource & { readonly isBatching: boolean },
): Promise<Tensor | undefined> {
  const { inputName, initialState: [initial] } = state;
  // Some value has to be there before the model makes one, so a free dimension is 1.
  const dims = (initial ?? state).dims.map((dim) => dim === -1n ? 1 : Number(dim));
  const shape = source.isBatching ? [1, ...dims] : dims;
  const datatype = datatypeOfConfig(state.dataType);
  if (datatype === undefined) return undefined;
  const target = { ...source, inputName, datatype, shape };
  const byteSize = smallestByteSize(target);
  const fileName = initial?.stateData.case === "dataFile" ? initial.stateData.value : undefined;
  const data = fileName === undefined
    ? new Uint8Array(byteSize)
    : await readFile(fileName, byteSize, target);
  return { name: inputName, datatype, shape, data };
}

/** Bytes of the value; for BYTES those of empty strings, the least there can be. */
function smallestByteSize({ inputName, datatype, shape }: StateTarget): number {
  const what = `initial state of '${inputName}'`;
  const byteSize = tensorByteSize(datatype, shape, what) ??
    elementCount(shape, what) * LENGTH_BYTES;
  if (byteSize <= STATE_BYTE_SIZE_MAX) return byteSize;
  throw new ServerError(
    "INVALID_ARG",
    `${what} must not be larger than ${STATE_BYTE_SIZE_MAX} bytes, got ${byteSize} for shape ` +
      formatShape(shape),
  );
}

async function readFile(
  fileName: string,
  byteSize: number,
  target: StateTarget,
): Promise<Uint8Array> {
  const { inputName, name, modelDirectory } = target;
  if (!isPathInside(fileName)) {
    throw new ServerError(
      "INVALID_ARG",
      `initial_state file path '${fileName}' for state input '${inputName}' is outside model ` +
        `directory`,
    );
  }
  const file = {
    path: `${modelDirectory}/initial_state/${fileName}`,
    name: `${name}/initial_state/${fileName.replace(/^\/+/, "")}`,
    root: modelDirectory,
  };
  if (target.datatype === "BYTES") {
    const bytes = await readBoundedFile(file, STATE_BYTE_SIZE_MAX);
    if (bytes === undefined) throw fileError(file, "No such file or directory");
    return takeStrings(bytes, fileName, target);
  }
  using handle = await openRegularFile(file);
  if (handle === undefined) throw fileError(file, "No such file or directory");
  const { size } = await handle.stat();
  if (size < byteSize) throw tooShort(fileName, byteSize, size);
  const bytes = new Uint8Array(byteSize);
  let filled = 0;
  while (filled < byteSize) {
    const count = await handle.read(bytes.subarray(filled));
    if (count === null) throw tooShort(fileName, byteSize, filled);
    filled += count;
  }
  return bytes;
}

/** The first elements of a file of BYTES elements, as many as the shape tells. */
function takeStrings(bytes: Uint8Array, fileName: string, target: StateTarget): Uint8Array {
  const count = elementCount(target.shape);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let end = 0;
  for (let index = 0; index < count; index++) {
    const start = end;
    if (start + LENGTH_BYTES <= bytes.byteLength) {
      end = start + LENGTH_BYTES + view.getUint32(start, true);
      if (end <= bytes.byteLength) continue;
    }
    throw new ServerError(
      "INVALID_ARG",
      `initial_state of state '${target.inputName}' expects ${count} strings in ${fileName}, each ` +
        `a 4-byte length and that many bytes, but the file ends within string ${index} at byte ` +
        `${bytes.byteLength}`,
    );
  }
  return bytes.subarray(0, end);
}

function tooShort(fileName: string, expected: number, size: number): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `initial_state setting expects ${expected} bytes, but the data provided from ${fileName}only ` +
      `has ${size} bytes.`,
  );
}
