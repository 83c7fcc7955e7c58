const FIXTURES = new URL("../fixtures/nvml_stand_in/", import.meta.url).pathname;

/** Our own libraries with the ABI of NVML and of the CUDA driver. */
export interface StandInLibraries extends AsyncDisposable {
  /** A folder for LD_LIBRARY_PATH. */
  readonly folder: string;
  readonly nvml: string;
  readonly cudaDriver: string;
}

/** Why the stand-ins cannot be built here; "" when they can. */
export function missingCompiler(): string {
  for (const folder of (Deno.env.get("PATH") ?? "").split(":")) {
    try {
      if (Deno.statSync(`${folder}/gcc`).isFile) return "";
    } catch {
      // Not in this folder.
    }
  }
  return "gcc is not installed: the stand-in libraries cannot be built";
}

/** Builds the stand-ins under the names of the real libraries. */
export async function buildStandIns(): Promise<StandInLibraries> {
  const folder = await Deno.makeTempDir({ prefix: "nereid-gpu-" });
  const nvml = `${folder}/libnvidia-ml.so.1`;
  const cudaDriver = `${folder}/libcuda.so.1`;
  await compile(`${FIXTURES}nvml_stand_in.c`, nvml);
  await compile(`${FIXTURES}cuda_driver_stand_in.c`, cudaDriver);
  return {
    folder,
    nvml,
    cudaDriver,
    [Symbol.asyncDispose]: () => Deno.remove(folder, { recursive: true }),
  };
}

/** Builds the library that harms whoever opens it, under a name of TensorRT. */
export async function buildBadLibrary(folder: string): Promise<string> {
  const path = `${folder}/libnvinfer.so.10`;
  await compile(`${FIXTURES}bad_library.c`, path);
  return path;
}

async function compile(source: string, target: string): Promise<void> {
  const args = ["-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o", target, source];
  const { code, stderr } = await new Deno.Command("gcc", { args, stderr: "piped" }).output();
  if (code !== 0) throw new Error(`gcc failed: ${new TextDecoder().decode(stderr)}`);
}
