import { join } from "node:path";
import type { TorchFolders } from "./locate.ts";

const SOURCE = new URL("./shim.cc", import.meta.url);
const LIMIT_MS = 300_000;
/** Newest first: headers from 2.12 on want it, those before 2.0 do not know it. */
const STANDARDS = ["-std=c++20", "-std=c++17"];

/** Where shims are kept: `nereid` in the user's folder of caches. */
export function defaultShimFolder(): string {
  const cache = Deno.env.get("XDG_CACHE_HOME") || join(Deno.env.get("HOME") ?? "/tmp", ".cache");
  return join(cache, "nereid");
}

/**
 * The path of the shim for this libtorch, compiled when there is none yet: half a minute, once.
 * @throws Error with the compiler's first words.
 */
export async function buildShim(torch: TorchFolders, folder: string): Promise<string> {
  const source = await Deno.readTextFile(SOURCE);
  const text = new TextEncoder().encode(`${source}\n${torch.stamp}`);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", text)).toHex().slice(0, 16);
  const path = join(folder, `torch_shim_${digest}.so`);
  if (await isFile(path)) return path;
  await Deno.mkdir(folder, { recursive: true });
  const scratch = await Deno.makeTempDir({ dir: folder, prefix: "torch_shim_" });
  try {
    const input = join(scratch, "shim.cc");
    const output = join(scratch, "shim.so");
    await Deno.writeTextFile(input, source);
    let failure = "";
    for (const standard of STANDARDS) {
      const args = compilerArguments(torch, { standard, input, output });
      failure = await compile(args);
      if (failure === "") break;
    }
    if (failure !== "") {
      throw new Error(`Cannot build the shim for libtorch in '${torch.libraries}': ${failure}`);
    }
    // Whole, or not at all: others may look for it now.
    await Deno.rename(output, path);
    return path;
  } finally {
    await Deno.remove(scratch, { recursive: true });
  }
}

function compilerArguments(
  { headers, libraries }: TorchFolders,
  { standard, input, output }: {
    readonly standard: string;
    readonly input: string;
    readonly output: string;
  },
): string[] {
  const include = [headers, join(headers, "torch/csrc/api/include")];
  return [
    ...[standard, "-O1", "-fPIC", "-shared", "-w", "-o", output, input],
    ...include.flatMap((folder) => ["-isystem", folder]),
    ...[`-L${libraries}`, "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10"],
    `-Wl,-rpath,${libraries}`,
  ];
}

/** "" = done, else why not. */
async function compile(args: readonly string[]): Promise<string> {
  const compiler = Deno.env.get("CXX") || "g++";
  const limit = AbortSignal.timeout(LIMIT_MS);
  try {
    const { code, stderr } = await new Deno.Command(compiler, {
      args: [...args],
      stdin: "null",
      stdout: "null",
      stderr: "piped",
      signal: limit,
    }).output();
    if (code === 0) return "";
    if (limit.aborted) return `'${compiler}' was not done within ${LIMIT_MS / 1000} s`;
    const lines = new TextDecoder().decode(stderr).split("\n");
    return (lines.find((line) => /error/i.test(line)) ?? lines[0] ?? "").slice(0, 500);
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) {
      return `there is no compiler '${compiler}'; 'apt-get install g++' brings it`;
    }
    return error instanceof Error ? error.message : String(error);
  }
}

async function isFile(path: string): Promise<boolean> {
  try {
    return (await Deno.stat(path)).isFile;
  } catch {
    return false;
  }
}
