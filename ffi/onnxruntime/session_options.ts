import { NativeHandle, type NativePointer } from "../handle.ts";
import { libraryFileFault } from "../library_file.ts";
import { cString, OutParameter } from "../memory.ts";
import { notNull, type OrtEnvironment } from "./environment.ts";
import { checkStatus, OrtError } from "./error.ts";
import { appendProvider, type ProviderSettings } from "./providers.ts";

const LOG_SEVERITY_FATAL = 4;
/** `ORT_INVALID_ARGUMENT`. */
const INVALID_ARGUMENT = 2;

/** `GraphOptimizationLevel` numbers. */
export const GRAPH_OPTIMIZATION = { OFF: 0, BASIC: 1, EXTENDED: 2, ALL: 99 } as const;

/** How a session is made; what is absent is left to the runtime. */
export interface SessionSettings {
  readonly graphOptimization?: number;
  /** 0 = the runtime's choice. */
  readonly intraOpThreadCount?: number;
  readonly interOpThreadCount?: number;
  readonly parallelExecution?: boolean;
  readonly memoryArena?: boolean;
  readonly memoryPattern?: boolean;
  /** Session configuration entries of the runtime. */
  readonly entries?: Readonly<Record<string, string>>;
  /** Libraries with custom operators. */
  readonly operatorLibraries?: readonly string[];
  /** Execution providers before the CPU's, best first. */
  readonly providers?: readonly ProviderSettings[];
}

/** `OrtSessionOptions`, needed only while a session is created. */
export class OrtSessionOptions extends NativeHandle {
  private constructor(pointer: NativePointer, environment: OrtEnvironment) {
    const { calls } = environment;
    super(pointer, (options) => calls.ReleaseSessionOptions(options));
  }

  /** @throws OrtError when the runtime refuses a setting. */
  static async create(
    environment: OrtEnvironment,
    settings: SessionSettings,
  ): Promise<OrtSessionOptions> {
    const { calls } = environment;
    const out = new OutParameter();
    checkStatus(calls, calls.CreateSessionOptions(out.cell));
    const pointer = notNull(out.pointer, "OrtSessionOptions");
    const options = new OrtSessionOptions(pointer, environment);
    try {
      applySettings(pointer, environment, settings);
      for (const provider of settings.providers ?? []) {
        await appendProvider(calls, pointer, provider);
      }
    } catch (error) {
      options[Symbol.dispose]();
      throw error;
    }
    return options;
  }
}

function applySettings(
  options: NativePointer,
  { calls, hasGlobalThreadPools }: OrtEnvironment,
  settings: SessionSettings,
): void {
  const check = (status: Deno.PointerValue) => checkStatus(calls, status);
  check(calls.SetSessionLogSeverityLevel(options, LOG_SEVERITY_FATAL));
  const level = settings.graphOptimization ?? GRAPH_OPTIMIZATION.ALL;
  check(calls.SetSessionGraphOptimizationLevel(options, level));
  if (hasGlobalThreadPools) {
    check(calls.DisablePerSessionThreads(options));
  } else {
    // The runtime takes 0 as "choose" and refuses less.
    const intra = Math.max(settings.intraOpThreadCount ?? 0, 0);
    const inter = Math.max(settings.interOpThreadCount ?? 0, 0);
    check(calls.SetIntraOpNumThreads(options, intra));
    check(calls.SetInterOpNumThreads(options, inter));
  }
  if (settings.parallelExecution === true) check(calls.SetSessionExecutionMode(options, 1));
  if (settings.memoryArena === false) check(calls.DisableCpuMemArena(options));
  if (settings.memoryPattern === false) check(calls.DisableMemPattern(options));
  for (const [key, value] of Object.entries(settings.entries ?? {})) {
    check(calls.AddSessionConfigEntry(options, cString(key), cString(value)));
  }
  for (const path of settings.operatorLibraries ?? []) {
    const fault = libraryFileFault(path);
    if (fault !== undefined) throw new OrtError(INVALID_ARGUMENT, `'${path}': ${fault}`);
    check(calls.RegisterCustomOpsLibrary_V2(options, cString(path)));
  }
}
