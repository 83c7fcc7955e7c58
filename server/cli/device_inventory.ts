import type { Backend } from "../../backends/backend.ts";
import { driverReason, type MachineDevices } from "../../backends/device.ts";
import {
  CPU_OFFER,
  type GpuDevice,
  type GpuMemory,
  type KindOffer,
  type WebGpuList,
} from "../../backends/device_list.ts";
import { KNOWN_LIBRARIES } from "./device_libraries.ts";
import { probeOnnxRuntime, type ProbeOptions } from "./device_probe.ts";
import { findLibrary, findPython, type LibraryReport } from "./library_search.ts";

/** What a machine has, and what that is good for. */
export interface DeviceInventory {
  readonly cpu: {
    readonly model: string;
    readonly architecture: string;
    readonly coreCount: number;
    readonly memoryByteSize: number;
  };
  readonly driver: {
    readonly version: string;
    readonly cudaVersion: string;
    /** Why there is none. */
    readonly reason?: string | undefined;
  };
  /** Why there are no GPUs although there is a driver. */
  readonly gpuReason?: string | undefined;
  readonly gpus: readonly (GpuDevice & { readonly memory?: GpuMemory | undefined })[];
  readonly webGpu: WebGpuList;
  readonly libraries: readonly LibraryReport[];
  readonly backends: readonly BackendReport[];
}

/** What a backend can use here. */
export interface BackendReport {
  readonly name: string;
  /** Best first; with a refusal what it could use but for something missing. */
  readonly kinds: readonly KindOffer[];
  /** Why the backend cannot be opened. */
  readonly error?: string;
}

/** What an inventory is taken with. */
export interface InventoryParts {
  readonly devices: MachineDevices;
  readonly backendNames: readonly string[];
  readonly openBackend: (name: string) => Promise<Backend> | undefined;
  /** `library` and `python-executable` of `--backend-config`. */
  readonly ortLibrary: string | undefined;
  readonly pythonExecutable: string;
  readonly signal?: AbortSignal | undefined;
}

/** Looks at everything; each look at a library is a process of its own. Takes seconds, never rejects. */
export async function takeInventory(parts: InventoryParts): Promise<DeviceInventory> {
  const { devices } = parts;
  const [driver, { gpus, reason: gpuReason }, libraries, webGpu] = await Promise.all([
    devices.driver(),
    devices.gpus(),
    listLibraries(parts),
    devices.webGpuAdapters(),
  ]);
  const { nvml, cuda } = driver;
  return {
    cpu: describeCpu(),
    driver: {
      version: driver.version,
      cudaVersion: driver.cudaVersion,
      reason: cuda instanceof Error
        ? driverReason(cuda, "libcuda.so.1")
        : nvml instanceof Error
        ? driverReason(nvml)
        : undefined,
    },
    gpuReason,
    gpus: await Promise.all(
      gpus.map(async (gpu) => ({ ...gpu, memory: await devices.gpuMemory(gpu.id) })),
    ),
    webGpu,
    libraries,
    backends: await describeBackends(parts),
  };
}

function describeCpu(): DeviceInventory["cpu"] {
  let model = "";
  let memoryByteSize = 0;
  try {
    model = /^model name\s*:\s*(.+)$/m.exec(Deno.readTextFileSync("/proc/cpuinfo"))?.[1] ?? "";
    memoryByteSize = Deno.systemMemoryInfo().total;
  } catch {
    // Another system, or the permission is withheld.
  }
  const coreCount = navigator.hardwareConcurrency;
  return { model, architecture: Deno.build.arch, coreCount, memoryByteSize };
}

async function listLibraries(parts: InventoryParts): Promise<LibraryReport[]> {
  const { pythonExecutable, ortLibrary, signal } = parts;
  const options: ProbeOptions = { signal };
  const [python, ort] = await Promise.all([
    findPython(pythonExecutable),
    probeOnnxRuntime(ortLibrary, options),
  ]);
  const onnxRuntime: LibraryReport = {
    name: "ONNX Runtime",
    version: ort.version ?? "",
    path: ort.path,
    backends: ["onnxruntime"],
    ...(ort.error === undefined ? {} : {
      reason: ort.error,
      packages: "deno install in the server's folder brings the npm package onnxruntime-node",
    }),
  };
  const isPython = typeof python !== "string";
  const pythonReport: LibraryReport = {
    name: "Python",
    version: isPython ? python.version : "",
    path: isPython ? python.executable : undefined,
    backends: ["python"],
    ...(isPython ? {} : { reason: python, packages: "apt-get install python3 python3-numpy" }),
    ...(isPython && !python.hasNumpy
      ? { reason: "it has no numpy", packages: "pip install numpy" }
      : {}),
  };
  const libraries = [onnxRuntime, pythonReport];
  // One after the other: each look is a process, and a machine may be busy serving.
  for (const library of KNOWN_LIBRARIES) {
    libraries.push(await findLibrary(library, isPython ? python.sitePackages : [], options));
  }
  return libraries;
}

async function describeBackends(parts: InventoryParts): Promise<BackendReport[]> {
  const reports: BackendReport[] = [];
  for (const name of parts.backendNames) {
    try {
      await using backend = await parts.openBackend(name);
      const kinds = await backend?.kinds?.(parts.devices) ?? [CPU_OFFER];
      reports.push({ name, kinds });
    } catch (reason) {
      const error = reason instanceof Error ? reason.message : String(reason);
      reports.push({ name, kinds: [], error });
    }
  }
  return reports;
}
