import { openLibrary } from "../library.ts";
import { libraryFileFault } from "../library_file.ts";
import { cString, readCString, whileHolding } from "../memory.ts";
import { preloadLibrary } from "../preload.ts";
import { locateTfLibrary } from "./locate.ts";
import { TfError, TfStatus } from "./status.ts";
import { createStringDeallocator, type StringDeallocator } from "./string_deallocator.ts";
import { SYMBOLS, type TfCalls } from "./symbols.ts";

/** Says how much the library writes to stderr; 2 = errors only. */
const LOG_LEVEL_VARIABLE = "TF_CPP_MIN_LOG_LEVEL";
const ERRORS_ONLY = "2";
const INVALID_ARGUMENT = 3;

/** The opened library, which stays for the life of the process. */
export class TfRuntime {
  readonly calls: TfCalls;
  readonly path: string;
  /** Such as `2.21.0`. */
  readonly version: string;

  /** What frees the strings of a tensor with its memory; undefined where native code of ours may not run. */
  readonly stringDeallocator: StringDeallocator | undefined;

  private constructor(calls: TfCalls, path: string) {
    this.calls = calls;
    this.path = path;
    this.stringDeallocator = createStringDeallocator(calls);
    this.version = readCString(calls.TF_Version());
  }

  /** @throws LibraryNotFoundError listing every place and why it offers none. */
  static async open(libraryPath: string | undefined): Promise<TfRuntime> {
    const key = libraryPath ?? "";
    const known = openedRuntimes.get(key);
    if (known !== undefined) return known;
    quietLog();
    const places = locateTfLibrary(libraryPath);
    for (const { path } of places.candidates) if (await preloadLibrary(path)) break;
    const { path, symbols } = openLibrary("the TensorFlow library (libtensorflow_cc)", {
      ...places,
      symbols: SYMBOLS,
    });
    const runtime = new TfRuntime(symbols, path);
    openedRuntimes.set(key, runtime);
    return runtime;
  }

  /** Loads a library with operators of its own; they stay for the life of the process. @throws TfError */
  async addOperators(path: string): Promise<void> {
    const fault = libraryFileFault(path);
    if (fault !== undefined) throw new TfError(INVALID_ARGUMENT, `'${path}': ${fault}`);
    const text = cString(path);
    using status = new TfStatus(this.calls);
    const { pointer } = status;
    await whileHolding([text, status], () => this.calls.TF_LoadLibrary(text, pointer));
    status.check();
  }
}

/** By the path asked for: a library stays open for the life of the process. */
const openedRuntimes = new Map<string, TfRuntime>();

/** The library reads the variable when it is opened, and would tell every step of every load. */
function quietLog(): void {
  try {
    if (Deno.env.get(LOG_LEVEL_VARIABLE) === undefined) {
      Deno.env.set(LOG_LEVEL_VARIABLE, ERRORS_ONLY);
    }
  } catch {
    // Without the permission it writes as it likes.
  }
}
