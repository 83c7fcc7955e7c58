import { dirname, isAbsolute, join } from "node:path";
import { cString, OutParameter, pointerAt, readCString } from "../memory.ts";
import type { OrtCalls } from "./api_table.ts";
import { OrtEnvironment } from "./environment.ts";
import { checkStatus, takeStatus } from "./error.ts";

/** Name by which the generic call appends the WebGPU provider; it is listed as `WebGpuExecutionProvider`. */
const WEBGPU = { listed: "WebGpuExecutionProvider", appended: "WebGPU" } as const;
/** More than ONNX Runtime has. */
const MAX_PROVIDERS = 64;

/** What the library at a path offers. */
export interface ProviderReport {
  readonly version: string;
  /** Name → "" when it can be used or needs a model to tell, else why not. */
  readonly providers: Readonly<Record<string, string>>;
}

/**
 * Lists the execution providers of an ONNX Runtime library. The one for WebGPU is tried: it opens the system's graphics
 * drivers, so call this in a process of its own.
 * @throws TypeError, OrtError or LibraryNotFoundError when the library cannot be used at all.
 */
export function probeProviders(path: string): ProviderReport {
  using environment = OrtEnvironment.open({ libraryPath: path });
  const { calls, version } = environment;
  const providers: Record<string, string> = {};
  for (const name of listProviders(calls)) {
    providers[name] = name === WEBGPU.listed
      ? tryAppend(calls, WEBGPU.appended)
      : missingBridge(path, name);
  }
  return { version, providers };
}

function listProviders(calls: OrtCalls): string[] {
  const [list, count] = [new OutParameter(), new Int32Array(new ArrayBuffer(4))];
  checkStatus(calls, calls.GetAvailableProviders(list.cell, count));
  const { pointer } = list;
  if (pointer === null) return [];
  const view = new Deno.UnsafePointerView(pointer);
  const names = Array.from(
    { length: Math.min(count[0]!, MAX_PROVIDERS) },
    (_, index) => readCString(pointerAt(view.getBigUint64(8 * index))),
  );
  checkStatus(calls, calls.ReleaseAvailableProviders(pointer, count[0]!));
  return names;
}

/** Why the provider cannot be appended to the options of a session; "" when it can. */
function tryAppend(calls: OrtCalls, name: string): string {
  const out = new OutParameter();
  checkStatus(calls, calls.CreateSessionOptions(out.cell));
  const options = out.pointer!;
  const empty = new BigUint64Array(new ArrayBuffer(8));
  const status = calls.SessionOptionsAppendExecutionProvider(
    options,
    cString(name),
    empty,
    empty,
    0n,
  );
  const error = takeStatus(calls, status);
  calls.ReleaseSessionOptions(options);
  // Its own words begin with a place in the library's source.
  return error?.message.trim().replace(/^\S+:\d+ .* was false\. /s, "") ?? "";
}

/** Providers for NVIDIA GPUs are in files of their own beside the library. */
const BRIDGES: Readonly<Record<string, string>> = {
  CUDAExecutionProvider: "libonnxruntime_providers_cuda.so",
  TensorrtExecutionProvider: "libonnxruntime_providers_tensorrt.so",
};

function missingBridge(path: string, provider: string): string {
  const file = BRIDGES[provider];
  if (file === undefined || !isAbsolute(path)) return "";
  try {
    Deno.statSync(join(dirname(path), file));
    return "";
  } catch {
    return `${file} is not beside the library`;
  }
}
