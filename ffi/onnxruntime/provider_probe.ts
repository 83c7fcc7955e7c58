import { dirname, isAbsolute, join } from "node:path";
import { OrtEnvironment } from "./environment.ts";
import { OrtError } from "./error.ts";
import { listProviders, PROVIDER_NAMES } from "./providers.ts";
import { OrtSessionOptions } from "./session_options.ts";

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
export async function probeProviders(path: string): Promise<ProviderReport> {
  using environment = OrtEnvironment.open({ libraryPath: path });
  const { calls, version } = environment;
  const providers: Record<string, string> = {};
  for (const name of listProviders(calls)) {
    providers[name] = name === PROVIDER_NAMES.WebGPU
      ? await tryWebGpu(environment)
      : missingBridge(path, name);
  }
  return { version, providers };
}

/** Why the WebGPU provider cannot be appended to the options of a session; "" when it can. */
async function tryWebGpu(environment: OrtEnvironment): Promise<string> {
  try {
    using _ = await OrtSessionOptions.create(environment, {
      providers: [{ name: "WebGPU", options: {} }],
    });
    return "";
  } catch (error) {
    if (!(error instanceof OrtError)) throw error;
    return providerReason(error);
  }
}

/** The words of a failure without the place in the library's source that they begin with. */
export function providerReason({ message }: OrtError): string {
  return message.trim().replace(/^\S+:\d+ .* was false\. /s, "");
}

/** Providers for NVIDIA GPUs are in files of their own beside the library. */
const BRIDGES: Readonly<Record<string, string>> = {
  CUDAExecutionProvider: "libonnxruntime_providers_cuda.so",
  TensorrtExecutionProvider: "libonnxruntime_providers_tensorrt.so",
};

/** Why a provider in a file of its own cannot be had from the library at `path`; "" when nothing is known against it. */
export function missingBridge(path: string, provider: string): string {
  const file = BRIDGES[provider];
  if (file === undefined || !isAbsolute(path)) return "";
  try {
    Deno.statSync(join(dirname(path), file));
    return "";
  } catch {
    return `${file} is not beside the library`;
  }
}
