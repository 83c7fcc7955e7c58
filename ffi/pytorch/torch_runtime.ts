import { libraryFileFault } from "../library_file.ts";
import { readCString } from "../memory.ts";
import { torchErrorIn } from "./torch_error.ts";
import { TORCH_ERROR_BYTE_SIZE, TORCH_SYMBOLS, type TorchCalls } from "./torch_symbols.ts";

const FEATURE = { packages: 1, cacheCleaning: 2 } as const;

/** The shim with libtorch behind it; both stay for the life of the process. */
export class TorchRuntime {
  readonly calls: TorchCalls;
  readonly version: string;
  /** AOTInductor packages can be loaded. */
  readonly hasPackages: boolean;
  /** Memory of devices that is kept for later can be freed. */
  readonly hasCacheCleaning: boolean;

  /** @throws Error when the shim cannot be loaded. */
  constructor(shimPath: string) {
    this.calls = openShim(shimPath);
    this.version = readCString(this.calls.nereid_torch_version());
    const features = this.calls.nereid_torch_features();
    this.hasPackages = (features & FEATURE.packages) !== 0;
    this.hasCacheCleaning = (features & FEATURE.cacheCleaning) !== 0;
  }

  /** CUDA devices that can be used now; undefined when this libtorch is built without CUDA. */
  cudaDeviceCount(): number | undefined {
    const count = this.calls.nereid_torch_cuda_count();
    return count < 0 ? undefined : count;
  }

  /** Threads of the whole process; 0 = as they are. @throws TorchError */
  setThreads({ intra, inter }: { readonly intra: number; readonly inter: number }): void {
    const error = new Uint8Array(new ArrayBuffer(TORCH_ERROR_BYTE_SIZE));
    const size = BigInt(TORCH_ERROR_BYTE_SIZE);
    const status = this.calls.nereid_torch_threads(intra, inter, error, size);
    if (status !== 0) throw torchErrorIn(error);
  }
}

function openShim(path: string): TorchCalls {
  const fault = libraryFileFault(path);
  if (fault !== undefined) {
    throw new Error(
      `Cannot open the shim of libtorch '${path}': ${fault}; delete it, it is made anew`,
    );
  }
  try {
    return Deno.dlopen(path, TORCH_SYMBOLS).symbols;
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    throw new Error(`Cannot open libtorch through its shim '${path}': ${words}`, { cause: error });
  }
}
