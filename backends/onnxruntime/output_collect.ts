import { ServerError } from "../../proto/status.ts";
import { elementCount } from "../../proto/tensor.ts";
import type { NativePointer } from "../../ffi/handle.ts";
import {
  copyTensor,
  lendTensor,
  type OrtEnvironment,
  readStrings,
  readValueShape,
} from "../../ffi/onnxruntime/mod.ts";
import type { CollectedOutput } from "../onnx_split_output.ts";
import type { OutputPlan } from "../onnx_run_plan.ts";
import { encodeStrings } from "./string_tensor.ts";

/** Up to this size a copy costs less than lending the runtime's memory. */
const COPY_BYTE_SIZE = 16 * 1024;

/** Takes over an `OrtValue` that the runtime made. */
export function collectValue(
  environment: OrtEnvironment,
  plan: OutputPlan,
  value: NativePointer,
): CollectedOutput {
  const { calls } = environment;
  const { name, datatype } = plan;
  let isLent = false;
  try {
    const { elementType, shape } = readValueShape(environment, value);
    if (elementType !== plan.elementType) {
      throw new ServerError("INTERNAL", `output '${name}' has another datatype than declared`);
    }
    const count = elementCount(shape, `output '${name}'`);
    if (plan.elementSize === 0) {
      const data = encodeStrings(readStrings(environment, value, count));
      return { tensor: { name, datatype, shape, data }, release: undefined };
    }
    const byteSize = count * plan.elementSize;
    if (byteSize <= COPY_BYTE_SIZE) {
      const data = copyTensor(environment, value, byteSize);
      return { tensor: { name, datatype, shape, data }, release: undefined };
    }
    const loan = lendTensor(environment, value, byteSize);
    isLent = true;
    const data = new Uint8Array(loan.buffer);
    return { tensor: { name, datatype, shape, data }, release: loan.release };
  } finally {
    if (!isLent) calls.ReleaseValue(value);
  }
}
