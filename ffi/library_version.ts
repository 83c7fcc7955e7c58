import { readCString } from "./memory.ts";

/** How a library tells its version; `none` = it has no function for that, and is only opened. */
export type VersionForm = "cudart" | "tensorrt" | "openvino" | "tensorflow" | "none";

/**
 * Opens a library for good and asks for its version; "" for form `none`. Whatever its constructors do is done: call it
 * in a process of its own.
 * @throws TypeError when it cannot be opened, lacks the function, or does not answer.
 */
export function readLibraryVersion(path: string, form: VersionForm): string {
  return READERS[form](path);
}

const READERS: Readonly<Record<VersionForm, (path: string) => string>> = {
  none: (path) => {
    Deno.dlopen(path, {});
    return "";
  },
  cudart: (path) => {
    const { symbols } = Deno.dlopen(path, {
      // cudaError_t cudaRuntimeGetVersion(int* version)
      cudaRuntimeGetVersion: { parameters: ["buffer"], result: "i32" },
    });
    const version = new Int32Array(new ArrayBuffer(4));
    checkStatus("cudaRuntimeGetVersion", symbols.cudaRuntimeGetVersion(version));
    return `${Math.floor(version[0]! / 1000)}.${Math.floor((version[0]! % 1000) / 10)}`;
  },
  tensorrt: (path) => {
    const { symbols } = Deno.dlopen(path, {
      // int32_t getInferLibVersion(void)
      getInferLibVersion: { parameters: [], result: "i32" },
    });
    return formatInferVersion(symbols.getInferLibVersion());
  },
  openvino: (path) => {
    const { symbols } = Deno.dlopen(path, {
      // ov_status_e ov_get_openvino_version(ov_version_t* version), of two const char*: build number, description
      ov_get_openvino_version: { parameters: ["buffer"], result: "i32" },
    });
    const texts = new BigUint64Array(new ArrayBuffer(16));
    checkStatus("ov_get_openvino_version", symbols.ov_get_openvino_version(texts));
    return readCString(Deno.UnsafePointer.create(texts[0]!));
  },
  tensorflow: (path) => {
    const { symbols } = Deno.dlopen(path, {
      // const char* TF_Version(void)
      TF_Version: { parameters: [], result: "pointer" },
    });
    return readCString(symbols.TF_Version());
  },
};

function checkStatus(call: string, status: number): void {
  if (status !== 0) throw new TypeError(`${call} failed with ${status}`);
}

/** `8601` → `8.6.1`, since version 10 `101600` → `10.16.0`. */
function formatInferVersion(version: number): string {
  const unit = version >= 100_000 ? 10_000 : 1000;
  const major = Math.floor(version / unit);
  return `${major}.${Math.floor((version % unit) / 100)}.${version % 100}`;
}
