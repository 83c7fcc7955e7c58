import { NativeHandle, type NativePointer } from "../handle.ts";
import { openLibrary } from "../library.ts";
import { FFI_REFUSAL, isFfiAllowed } from "../permission.ts";
import { cString, OutParameter, readCString } from "../memory.ts";
import { bindOrtCalls, type OrtCalls } from "./api_table.ts";
import { checkStatus } from "./error.ts";
import { locateOrtLibrary } from "./locate.ts";

/** Oldest API this binding works with: the newest slot it cannot do without appeared before it. */
const MINIMUM_API_VERSION = 17;
/** Newest API it was tested with; a later library is asked for this one. */
const TESTED_API_VERSION = 30;
/** Only fatal lines: failures reach us as statuses. */
const LOG_SEVERITY_FATAL = 4;

/** Thread pools that all sessions share. */
export interface GlobalThreadPools {
  /** 0 = the runtime's choice. */
  readonly intraOpThreadCount: number;
  readonly interOpThreadCount: number;
}

export interface OrtEnvironmentOptions {
  /** Path from the configuration; searched for when absent. */
  readonly libraryPath?: string | undefined;
  readonly globalThreadPools?: GlobalThreadPools | undefined;
}

/** The opened library with its environment, which exists once per process however often it is created. */
export class OrtEnvironment extends NativeHandle {
  readonly calls: OrtCalls;
  readonly libraryPath: string;
  /** Version of the library, such as `1.30.0`. */
  readonly version: string;
  readonly apiVersion: number;
  readonly hasGlobalThreadPools: boolean;
  /** `OrtMemoryInfo*` for memory of ours, and the default `OrtAllocator*` for memory of the runtime. */
  readonly cpuMemory: NativePointer;
  readonly allocator: NativePointer;

  private constructor(pointer: NativePointer, parts: OpenedApi & { global: boolean }) {
    const { calls } = parts;
    super(pointer, (environment) => calls.ReleaseEnv(environment));
    this.calls = calls;
    this.libraryPath = parts.path;
    this.version = parts.version;
    this.apiVersion = parts.apiVersion;
    this.hasGlobalThreadPools = parts.global;
    const out = new OutParameter();
    checkStatus(calls, calls.CreateCpuMemoryInfo(1, 0, out.cell));
    this.cpuMemory = notNull(out.pointer, "OrtMemoryInfo");
    checkStatus(calls, calls.GetAllocatorWithDefaultOptions(out.cell));
    this.allocator = notNull(out.pointer, "OrtAllocator");
  }

  /** @throws LibraryNotFoundError, OrtError, or TypeError for a library of an unsuitable version. */
  static open(options: OrtEnvironmentOptions = {}): OrtEnvironment {
    const api = openApi(options.libraryPath);
    const { calls } = api;
    const out = new OutParameter();
    const id = cString("nereid");
    const pools = options.globalThreadPools;
    if (pools === undefined) {
      checkStatus(calls, calls.CreateEnv(LOG_SEVERITY_FATAL, id, out.cell));
    } else {
      checkStatus(calls, calls.CreateThreadingOptions(out.cell));
      const threading = notNull(out.pointer, "OrtThreadingOptions");
      try {
        const { intraOpThreadCount: intra, interOpThreadCount: inter } = pools;
        checkStatus(calls, calls.SetGlobalIntraOpNumThreads(threading, intra));
        checkStatus(calls, calls.SetGlobalInterOpNumThreads(threading, inter));
        checkStatus(
          calls,
          calls.CreateEnvWithGlobalThreadPools(LOG_SEVERITY_FATAL, id, threading, out.cell),
        );
      } finally {
        calls.ReleaseThreadingOptions(threading);
      }
    }
    const environment = notNull(out.pointer, "OrtEnv");
    checkStatus(calls, calls.DisableTelemetryEvents(environment));
    return new OrtEnvironment(environment, { ...api, global: pools !== undefined });
  }

  override [Symbol.dispose](): void {
    if (this.disposed) return;
    this.calls.ReleaseMemoryInfo(this.cpuMemory);
    super[Symbol.dispose]();
  }
}

interface OpenedApi {
  readonly calls: OrtCalls;
  readonly path: string;
  readonly version: string;
  readonly apiVersion: number;
}

/** Bound once per path: a library stays open for the life of the process. */
const openedApis = new Map<string, OpenedApi>();

function openApi(libraryPath: string | undefined): OpenedApi {
  const key = libraryPath ?? "";
  const opened = openedApis.get(key) ?? bindApi(libraryPath);
  openedApis.set(key, opened);
  return opened;
}

/** Why the library that would be found cannot be used; undefined when it can. */
export function checkOrtLibrary(): string | undefined {
  if (!isFfiAllowed()) return FFI_REFUSAL;
  try {
    openApi(undefined);
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Read by the library when it is loaded. `DisableTelemetryEvents` alone comes too late: files are made before it. */
const DISABLE_TELEMETRY = "ORT_DISABLE_TELEMETRY";

function bindApi(libraryPath: string | undefined): OpenedApi {
  Deno.env.set(DISABLE_TELEMETRY, "1");
  const places = locateOrtLibrary(libraryPath);
  const { path, symbols } = openLibrary("the ONNX Runtime library", {
    ...places,
    // const OrtApiBase* OrtGetApiBase(void)
    symbols: { OrtGetApiBase: { parameters: [], result: "pointer" } },
  });
  const base = new Deno.UnsafePointerView(notNull(symbols.OrtGetApiBase(), "OrtApiBase"));
  // const OrtApi* GetApi(uint32_t version)
  const getApi = bindAt(base, 0, { parameters: ["u32"], result: "pointer" });
  // const char* GetVersionString(void)
  const getVersion = bindAt(base, 8, { parameters: [], result: "pointer" });
  const version = readCString(getVersion());
  const apiVersion = chooseApiVersion(version, path);
  const api = notNull(getApi(apiVersion), `OrtApi of version ${apiVersion}`);
  return { calls: bindOrtCalls(api, apiVersion), path, version, apiVersion };
}

/** The API version is the second part of the library's version; asking for more makes the library complain. */
function chooseApiVersion(version: string, path: string): number {
  const match = /^1\.(\d+)/.exec(version);
  const minor = match === null ? -1 : Number(match[1]);
  if (minor < MINIMUM_API_VERSION) {
    throw new TypeError(
      `Cannot use '${path}': ONNX Runtime ${version} is not a version 1.x from ` +
        `1.${MINIMUM_API_VERSION} on`,
    );
  }
  return Math.min(minor, TESTED_API_VERSION);
}

function bindAt<const T extends Deno.ForeignFunction>(
  view: Deno.UnsafePointerView,
  offset: number,
  definition: T,
): Deno.UnsafeFnPointer<T>["call"] {
  const pointer = notNull(view.getPointer(offset), "function");
  const callable = new Deno.UnsafeFnPointer(pointer as never, definition);
  return callable.call.bind(callable) as Deno.UnsafeFnPointer<T>["call"];
}

/** @throws TypeError for null. */
export function notNull(pointer: Deno.PointerValue, what: string): NativePointer {
  if (pointer === null) throw new TypeError(`ONNX Runtime returned null for ${what}`);
  return pointer;
}
