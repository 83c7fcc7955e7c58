import { createHash } from "node:crypto";
import { join } from "node:path";
import { readLibraryVersion } from "../../ffi/library_version.ts";
import type { ProviderSettings } from "../../ffi/onnxruntime/mod.ts";
import type { BackendSettings } from "../backend.ts";

/** Setting of `--backend-config` for the folder below which engines are kept. */
const DIRECTORY_SETTING = "engine-cache-directory";

/** What engines built from a model depend on, beside its files and the options. */
export interface EngineSurroundings {
  /** Versions of the libraries that build and run them. */
  readonly libraries: readonly string[];
  /** Name and compute capability of the GPU. */
  readonly device: string;
}

/**
 * Keeps the engines that TensorRT builds from a model, which takes minutes, for the next load: in a folder of their own
 * for each content of the version folder, version of the libraries, device, and options. A model that says itself where
 * its engines go, or that none are kept, is left alone.
 */
export async function keepEngines(
  provider: ProviderSettings,
  { versionDirectory, settings, surroundings }: {
    readonly versionDirectory: string;
    readonly settings: BackendSettings;
    readonly surroundings: EngineSurroundings;
  },
): Promise<ProviderSettings> {
  const { options } = provider;
  const isOff = /^(?:0|false)$/i.test(options["trt_engine_cache_enable"] ?? "1");
  if (isOff || options["trt_engine_cache_path"] !== undefined) return provider;
  const root = cacheRoot(settings);
  if (root === undefined) return provider;
  const folder = join(root, await engineKey(versionDirectory, { options, surroundings }));
  await Deno.mkdir(folder, { recursive: true });
  const timing = options["trt_timing_cache_enable"] ?? "1";
  const own = Object.fromEntries([
    ["trt_engine_cache_enable", "1"],
    ["trt_engine_cache_path", folder],
    ["trt_timing_cache_enable", timing],
    ["trt_timing_cache_path", folder],
  ]);
  return { ...provider, options: { ...options, ...own } };
}

function cacheRoot(settings: BackendSettings): string | undefined {
  const named = settings.get(DIRECTORY_SETTING);
  if (named !== undefined && named !== "") return named;
  const read = (name: string) => Deno.env.get(name) || undefined;
  const home = read("HOME");
  const cache = read("XDG_CACHE_HOME") ?? (home === undefined ? undefined : join(home, ".cache"));
  return cache === undefined ? undefined : join(cache, "nereid", "tensorrt-engines");
}

/** `<model>-<surroundings>`, each half a digest: files of the version folder with names and contents; all else. */
async function engineKey(
  versionDirectory: string,
  { options, surroundings }: {
    readonly options: Readonly<Record<string, string>>;
    readonly surroundings: EngineSurroundings;
  },
): Promise<string> {
  const model = createHash("sha256");
  for (const name of await listFiles(versionDirectory)) {
    model.update(`${name}\0`);
    using file = await Deno.open(join(versionDirectory, name));
    for await (const chunk of file.readable) model.update(chunk);
  }
  const built = Object.entries(options).filter(([key]) => key !== "device_id").sort();
  const rest = JSON.stringify([surroundings, built]);
  const short = (digest: string) => digest.slice(0, 24);
  return `${short(model.digest("hex"))}-${short(createHash("sha256").update(rest).digest("hex"))}`;
}

/** Files of a folder and of those in it, sorted. */
async function listFiles(folder: string, prefix = ""): Promise<string[]> {
  const names: string[] = [];
  for await (const entry of Deno.readDir(join(folder, prefix))) {
    const name = join(prefix, entry.name);
    if (entry.isDirectory) names.push(...await listFiles(folder, name));
    else if ((await Deno.stat(join(folder, name))).isFile) names.push(name);
  }
  return names.sort();
}

/** Files of TensorRT, one of which the provider opens. */
const TENSORRT_FILES = ["libnvinfer.so.11", "libnvinfer.so.10", "libnvinfer.so.8"];

/** Versions of TensorRT that the system's loader finds. */
export function tensorRtVersions(): string[] {
  return TENSORRT_FILES.flatMap((file) => {
    try {
      return `TensorRT ${readLibraryVersion(file, "tensorrt")}`;
    } catch {
      return [];
    }
  });
}
