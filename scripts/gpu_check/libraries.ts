import { join } from "node:path";

/** What a folder of unpacked wheels (`pip install --target`) has for GPUs. */
export interface GpuLibraries {
  /** Folders with libraries, for the system's loader. */
  readonly folders: readonly string[];
  /** The native ONNX Runtime with the providers for CUDA and TensorRT beside it. */
  readonly onnxRuntime: string | undefined;
}

/** Folders of a wheel are not nested deeper. */
const DEPTH_MAX = 5;

/** Looks for libraries below a folder; none when it cannot be read. */
export async function findGpuLibraries(root: string): Promise<GpuLibraries> {
  const folders = new Set<string>();
  let onnxRuntime: string | undefined;
  const walk = async (folder: string, depth: number): Promise<void> => {
    for (const { name, isDirectory } of await listFolder(folder)) {
      const path = join(folder, name);
      if (isDirectory && depth < DEPTH_MAX) await walk(path, depth + 1);
      if (isDirectory || !/\.so(\.|$)/.test(name)) continue;
      if (/^libonnxruntime\.so(\.|$)/.test(name)) onnxRuntime = path;
      // Modules of Python are none of the loader's.
      if (name.startsWith("lib")) folders.add(folder);
    }
  };
  await walk(root, 0);
  return { folders: [...folders].sort(), onnxRuntime };
}

/** Variables with which every process finds the libraries, and Python the packages. */
export function libraryEnvironment(
  root: string,
  { folders, onnxRuntime }: GpuLibraries,
): Record<string, string> {
  const join = (name: string, parts: readonly string[]) =>
    [...parts, Deno.env.get(name) ?? ""].filter((part) => part !== "").join(":");
  return {
    ["LD_LIBRARY_PATH"]: join("LD_LIBRARY_PATH", folders),
    ["PYTHONPATH"]: join("PYTHONPATH", [root]),
    ...(onnxRuntime === undefined ? {} : { ["NEREID_ONNXRUNTIME_LIBRARY"]: onnxRuntime }),
  };
}

async function listFolder(folder: string): Promise<Deno.DirEntry[]> {
  try {
    return await Array.fromAsync(Deno.readDir(folder));
  } catch {
    return [];
  }
}
