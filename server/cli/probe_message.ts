import type { WebGpuAdapter } from "../../backends/device_list.ts";
import type { VersionForm } from "../../ffi/library_version.ts";

/** Command of this program that looks at one thing which may take a process down, and answers on standard output. */
export const PROBE_COMMAND = "probe-device";

/** What a process of its own shall look at. */
export type ProbeRequest =
  /** The first of the paths that can be opened. */
  | { readonly what: "library"; readonly paths: readonly string[]; readonly form: VersionForm }
  | { readonly what: "onnxruntime"; readonly path: string }
  | { readonly what: "webgpu" };

/** What came of it. */
export interface ProbeAnswer {
  /** Of the library that was opened, as the loader found it. */
  readonly path?: string;
  /** Of a library; "" when it does not tell. */
  readonly version?: string;
  /** Execution providers of ONNX Runtime: name → "" or why it cannot be used. */
  readonly providers?: Readonly<Record<string, string>>;
  readonly adapters?: readonly WebGpuAdapter[];
  /** Why nothing can be told. */
  readonly error?: string;
}
