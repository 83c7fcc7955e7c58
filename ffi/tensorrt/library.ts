import { type CallRunner, createCallRunner } from "../call_list.ts";
import { type LibraryCandidate, openLibrary } from "../library.ts";
import { loadMachineCode, type MachineCode } from "../machine_code.ts";
import { addressOfPointer, cString } from "../memory.ts";
import { type CodeRange, codeRanges } from "./code_ranges.ts";
import { TensorRtError } from "./error.ts";
import { NativeLogger } from "./logger.ts";
import {
  findSlotTable,
  parseVersion,
  type SlotTable,
  SUPPORTED_VERSIONS,
  type TensorRtVersion,
} from "./slot_table.ts";

const SYMBOLS = {
  // int32_t getInferLibVersion()
  getInferLibVersion: { parameters: [], result: "i32" },
  // void* createInferRuntime_INTERNAL(void* logger, int32_t version)
  createInferRuntime_INTERNAL: { type: "pointer" },
} as const satisfies Deno.ForeignLibraryInterface;

const PLUGIN_SYMBOLS = {
  // bool initLibNvInferPlugins(void* logger, const char* namespace)
  initLibNvInferPlugins: { parameters: ["pointer", "buffer"], result: "bool", nonblocking: true },
} as const satisfies Deno.ForeignLibraryInterface;

/** Newest first: plans fit one version only, and a setting can name another library. */
const NAMES = [
  "libnvinfer.so.11",
  "libnvinfer.so.10",
  "libnvinfer.so.9",
  "libnvinfer.so.8",
  "libnvinfer.so",
];

/** An opened libnvinfer and what its calls need. */
export interface TensorRtLibrary {
  readonly path: string;
  readonly version: TensorRtVersion;
  readonly table: SlotTable;
  readonly code: MachineCode;
  readonly runner: CallRunner;
  readonly logger: NativeLogger;
  /** Address of `createInferRuntime_INTERNAL`. */
  readonly createRuntime: bigint;
  /** Where the library has its code. */
  readonly codeRanges: readonly CodeRange[];
}

/**
 * Opens libnvinfer: the given file, or the newest the system's loader finds.
 * @throws LibraryNotFoundError when there is none; TensorRtError for a version whose methods are not known; Error on
 * systems other than Linux.
 */
export function openTensorRt(
  { path }: { readonly path?: string | undefined } = {},
): TensorRtLibrary {
  const code = loadMachineCode();
  const candidates: LibraryCandidate[] = path === undefined
    ? NAMES.map((name) => ({ origin: "system", path: name }))
    : [{ origin: "setting 'library'", path }];
  const opened = openLibrary("TensorRT (libnvinfer)", { candidates, symbols: SYMBOLS });
  const { getInferLibVersion, createInferRuntime_INTERNAL } = opened.symbols;
  const version = parseVersion(getInferLibVersion());
  const table = findSlotTable(version);
  if (table === undefined) {
    throw new TensorRtError(
      `Cannot use TensorRT ${version.text} from '${opened.path}': expected version ` +
        `${SUPPORTED_VERSIONS}`,
    );
  }
  const createRuntime = addressOfPointer(createInferRuntime_INTERNAL);
  return {
    path: opened.path,
    version,
    table,
    code,
    runner: createCallRunner(code),
    logger: new NativeLogger(code, table),
    createRuntime,
    codeRanges: codeRanges(createRuntime),
  };
}

/**
 * Makes TensorRT's own plugins known, which plans may contain, where that library exists; then further libraries that
 * register their plugins when they are opened. Returns the paths that were opened.
 * @throws LibraryNotFoundError for one of `files`.
 */
export async function loadPlugins(
  library: TensorRtLibrary,
  files: readonly string[],
): Promise<string[]> {
  const opened: string[] = [];
  const folder = library.path.includes("/") ? library.path.replace(/[^/]*$/, "") : "";
  const name = `libnvinfer_plugin.so.${library.version.major}`;
  const candidates = [...new Set([`${folder}${name}`, name])]
    .map((path) => ({ origin: "beside libnvinfer", path }));
  try {
    const plugin = openLibrary("TensorRT's plugins", { candidates, symbols: PLUGIN_SYMBOLS });
    const logger = Deno.UnsafePointer.create(library.logger.address);
    if (await plugin.symbols.initLibNvInferPlugins(logger, cString(""))) opened.push(plugin.path);
  } catch {
    // Plans without such plugins do not need it.
  }
  for (const path of files) {
    openLibrary("a library of plugins", {
      candidates: [{ origin: "setting 'plugins'", path }],
      symbols: {},
    });
    opened.push(path);
  }
  return opened;
}
