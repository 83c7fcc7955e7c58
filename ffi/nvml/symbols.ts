import { openLibrary } from "../library.ts";

const NVML_SYMBOLS = {
  // nvmlReturn_t nvmlInit_v2(void)
  nvmlInit_v2: { parameters: [], result: "i32", nonblocking: true },
  // nvmlReturn_t nvmlShutdown(void)
  nvmlShutdown: { parameters: [], result: "i32" },
  // const char* nvmlErrorString(nvmlReturn_t result)
  nvmlErrorString: { parameters: ["i32"], result: "pointer" },
  // nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length)
  nvmlSystemGetDriverVersion: { parameters: ["buffer", "u32"], result: "i32" },
  // nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int* version)
  nvmlSystemGetCudaDriverVersion_v2: { parameters: ["buffer"], result: "i32" },
  // nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int* count)
  nvmlDeviceGetCount_v2: { parameters: ["buffer"], result: "i32" },
  // nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t* device)
  nvmlDeviceGetHandleByIndex_v2: { parameters: ["u32", "buffer"], result: "i32" },
  // nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char* uuid, unsigned int length)
  nvmlDeviceGetUUID: { parameters: ["pointer", "buffer", "u32"], result: "i32" },
  // nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char* name, unsigned int length)
  nvmlDeviceGetName: { parameters: ["pointer", "buffer", "u32"], result: "i32" },
  // nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor)
  nvmlDeviceGetCudaComputeCapability: {
    parameters: ["pointer", "buffer", "buffer"],
    result: "i32",
  },
  // nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t* memory)
  nvmlDeviceGetMemoryInfo: {
    parameters: ["pointer", "buffer"],
    result: "i32",
    nonblocking: true,
  },
  // nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t* utilization)
  nvmlDeviceGetUtilizationRates: {
    parameters: ["pointer", "buffer"],
    result: "i32",
    nonblocking: true,
  },
  // nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int* milliwatts)
  nvmlDeviceGetPowerUsage: { parameters: ["pointer", "buffer"], result: "i32", nonblocking: true },
  // nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int* milliwatts)
  nvmlDeviceGetEnforcedPowerLimit: {
    parameters: ["pointer", "buffer"],
    result: "i32",
    nonblocking: true,
  },
  // nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long* millijoules)
  nvmlDeviceGetTotalEnergyConsumption: {
    parameters: ["pointer", "buffer"],
    result: "i32",
    nonblocking: true,
  },
} as const satisfies Deno.ForeignLibraryInterface;

/** Functions of NVML that are used here. Calls that may take milliseconds run on the blocking pool. */
export type NvmlCalls = Deno.StaticForeignLibraryInterface<typeof NVML_SYMBOLS>;

/** The file that every driver since 2011 brings. */
export const NVML_FILE_NAME = "libnvidia-ml.so.1";

/** Opens NVML, by default the driver's. @throws LibraryNotFoundError with the loader's reason. */
export function openNvmlLibrary(path: string = NVML_FILE_NAME): {
  readonly path: string;
  readonly symbols: NvmlCalls;
} {
  const candidates = [{ origin: path === NVML_FILE_NAME ? "system library" : "given path", path }];
  return openLibrary("NVML", { candidates, symbols: NVML_SYMBOLS });
}
