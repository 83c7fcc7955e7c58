import { ServerError } from "../../proto/status.ts";
import { parseFloatValue, parseIntValue } from "./flag_values.ts";
import type { ParsedFlags } from "./flags.ts";

/** What the command line says about devices (cli.md §2.8). */
export interface DeviceOptions {
  /** `--min-supported-compute-capability`. */
  readonly minComputeCapability: number;
  /** `--pinned-memory-pool-byte-size`; 0 = no pool. */
  readonly pinnedPoolByteSize: number;
  /** `--cuda-memory-pool-byte-size` by GPU; those without one have {@linkcode CUDA_POOL_BYTE_SIZE}. */
  readonly cudaPoolByteSizes: ReadonlyMap<number, number>;
}

/** Size of the memory pool of a GPU unless the command line says otherwise. */
export const CUDA_POOL_BYTE_SIZE = 67_108_864;

/** Reads the flags about devices. @throws ServerError INVALID_ARG with the text to print. */
export function readDeviceOptions(flags: ParsedFlags): DeviceOptions {
  return {
    minComputeCapability: flags.number("min-supported-compute-capability"),
    pinnedPoolByteSize: flags.number("pinned-memory-pool-byte-size"),
    cudaPoolByteSizes: readByGpu(flags, "cuda-memory-pool-byte-size", {
      form: "<gpu>:<bytes>",
      parse: (text) => parseIntValue(text, Number.MAX_SAFE_INTEGER),
      isValid: (bytes) => bytes >= 0,
      expected: "0 bytes or more",
    }),
  };
}

/** `--model-load-gpu-limit`: the fraction of a GPU's memory above which no model is loaded, by GPU. */
export function readGpuLimits(flags: ParsedFlags): ReadonlyMap<number, number> {
  return readByGpu(flags, "model-load-gpu-limit", {
    form: "<gpu>:<fraction>",
    parse: parseFloatValue,
    isValid: (fraction) => fraction >= 0 && fraction <= 1,
    expected: "a fraction from 0 to 1",
  });
}

interface ValueForm {
  readonly form: string;
  readonly parse: (text: string) => number;
  readonly isValid: (value: number) => boolean;
  readonly expected: string;
}

function readByGpu(
  flags: ParsedFlags,
  flag: string,
  { form, parse, isValid, expected }: ValueForm,
): ReadonlyMap<number, number> {
  const values = new Map<number, number>();
  for (const text of flags.list(flag)) {
    const match = /^\s*(\d+)\s*:(.+)$/.exec(text);
    if (match === null) throw usage(flag, `--${flag} option format is '${form}'. Got ${text}`);
    values.set(
      readPart(flag, () => parseIntValue(match[1]!)),
      readPart(flag, () => {
        const value = parse(match[2]!);
        if (isValid(value)) return value;
        throw new ServerError(
          "INVALID_ARG",
          `Invalid option value. Got ${text}, expected ${expected}`,
        );
      }),
    );
  }
  return values;
}

function readPart(flag: string, read: () => number): number {
  try {
    return read();
  } catch (reason) {
    throw usage(flag, ServerError.from(reason).message);
  }
}

function usage(flag: string, message: string): ServerError {
  return new ServerError("INVALID_ARG", `Bad option: "--${flag}".\n${message}`);
}
