import type { ServerError } from "../proto/status.ts";

/** CUDA errors behind which every call of the process fails until it ends (driver and runtime have the same names). */
const CUDA_NAMES =
  /(?:cudaError|CUDA_ERROR_)_?(?:IllegalAddress|LaunchTimeout|ContextIsDestroyed|Assert|HardwareStackError|IllegalInstruction|MisalignedAddress|InvalidAddressSpace|InvalidPc|LaunchFailure|ECCUncorrectable|NvlinkUncorrectable|ExternalDevice|ILLEGAL_ADDRESS|LAUNCH_TIMEOUT|CONTEXT_IS_DESTROYED|ASSERT|HARDWARE_STACK_ERROR|ILLEGAL_INSTRUCTION|MISALIGNED_ADDRESS|INVALID_ADDRESS_SPACE|INVALID_PC|LAUNCH_FAILED|ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE|EXTERNAL_DEVICE)\b/;
/** The same as frameworks tell them: by number, or in CUDA's words. */
const CUDA_WORDS =
  /CUDA (?:failure|error)[: ]+(?:(?:214|220|70[029]|71[04-9]|721)\b|an illegal (?:memory access|instruction)|device-side assert|unspecified launch failure|misaligned address|the launch timed out|uncorrectable (?:ECC|NVLink) error|hardware stack error)/i;
/** Those of WebGPU. */
const WEBGPU_WORDS = /\b(?:device|GPUDevice) (?:is|was|has been) lost\b|\bDevice lost\b/;

const CAUSE_COUNT_MAX = 8;

/**
 * Whether an error of a backend says that its device is lost to this process: nothing runs on it any more before the
 * process ends. Looks at causes, too.
 */
export function tellsDeviceLoss(error: ServerError): boolean {
  // What a client may cause with its request alone is told with these codes.
  if (error.code === "INVALID_ARG" || error.code === "CANCELLED") return false;
  let each: unknown = error;
  for (let depth = 0; each instanceof Error && depth < CAUSE_COUNT_MAX; depth++) {
    const { message } = each;
    if (CUDA_NAMES.test(message) || CUDA_WORDS.test(message) || WEBGPU_WORDS.test(message)) {
      return true;
    }
    each = each.cause;
  }
  return false;
}
