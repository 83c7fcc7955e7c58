import { ServerError } from "../../proto/status.ts";
import { checkOrtLibrary } from "../../ffi/onnxruntime/mod.ts";
import type { BackendSettings } from "../backend.ts";

const RUNTIME_KEY = "runtime";
const LIBRARY_KEY = "library";

/**
 * Why ONNX models cannot run on the native runtime here; undefined when they can, or must: by `runtime=native`, or
 * because a `library` is named, whose faults are told by each model that needs it.
 * @throws ServerError INVALID_ARG for an unknown `runtime`.
 */
export function findNativeRefusal(settings: BackendSettings): string | undefined {
  const runtime = settings.get(RUNTIME_KEY) ?? "";
  if (runtime === "web") return `--backend-config=onnxruntime,${RUNTIME_KEY}=web asks for it`;
  if (runtime === "native") return undefined;
  if (runtime !== "") {
    throw new ServerError(
      "INVALID_ARG",
      `--backend-config '${RUNTIME_KEY}' of backend 'onnxruntime' must be 'native' or 'web', got ` +
        `'${runtime}'`,
    );
  }
  return (settings.get(LIBRARY_KEY) ?? "") === "" ? checkOrtLibrary() : undefined;
}
