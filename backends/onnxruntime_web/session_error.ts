import { ServerError } from "../../proto/status.ts";

const WITH_CODE = /ERROR_CODE: (\d+), ERROR_MESSAGE: ([^]*)$/;
const UNKNOWN_TYPE = /^unsupported data type: (\d+)$/;
const BFLOAT16 = "16";
const NEEDS_CPU = /fallback to CPU EP has been explicitly disabled/;

/**
 * A failure of the runtime in the words that the native one has for it: `onnx runtime error 2: …`.
 * `isInput`: it is the client's.
 */
export function sessionError(text: string, isInput: boolean): ServerError {
  if (isInput) return new ServerError("INVALID_ARG", text);
  const [, code, message] = WITH_CODE.exec(text) ?? [];
  if (NEEDS_CPU.test(text)) {
    return new ServerError(
      "UNSUPPORTED",
      `the model cannot run on WebGPU alone: without the parameter ` +
        `'session.disable_cpu_ep_fallback' the nodes that WebGPU lacks run on the CPU; or take ` +
        `KIND_CPU or KIND_AUTO (${message?.trimEnd() ?? text})`,
    );
  }
  if (code !== undefined && message !== undefined) {
    return new ServerError("INTERNAL", `onnx runtime error ${code}: ${message.trimEnd()}`);
  }
  const type = UNKNOWN_TYPE.exec(text)?.[1];
  if (type !== undefined) {
    const name = type === BFLOAT16 ? "BF16" : `of ONNX type number ${type}`;
    return new ServerError(
      "UNSUPPORTED",
      `the model has inputs or outputs ${name}, which onnxruntime-web does not have; the native ` +
        "runtime does (see docs/onnxruntime_web.md)",
    );
  }
  if (/out of memory|failed to allocate|Array buffer allocation|bad_alloc|\bOOM\b/i.test(text)) {
    return new ServerError(
      "UNAVAILABLE",
      `onnxruntime-web is out of memory (it has 4 GiB at most): ${text}`,
    );
  }
  return new ServerError("INTERNAL", `onnx runtime error: ${text}`);
}
