import { join } from "node:path";
import type { TorchFolders } from "./locate.ts";

const SOURCE = new URL("./shim.cc", import.meta.url);
const LIMIT_MS = 300_000;
/** Headers of these and newer want C++20; those before 2.0 do not know it. */
const FIRST_WITH_CPP20 = 2.12;
const MAX_MESSAGE_LENGTH = 1500;

/** Where shims are kept: `nereid` in the user's folder of caches. */
export function defaultShimFolder(): string {
  const cache = Deno.env.get("XDG_CACHE_HOME") || join(Deno.env.get("HOME") ?? "/tmp", ".cache");
  return join(cache, "nereid");
}

/**
 * The path of the shim for this libtorch, compiled when there is none yet: half a minute, once. Several processes may do
 * so at the same time: each puts the same file in place.
 * @throws Error with the compiler's first words, or with what is missing.
 */
export async function buildShim(torch: TorchFolders, folder: string): Promise<string> {
  const source = await Deno.readTextFile(SOURCE);
  const text = new TextEncoder().encode(`${source}\n${torch.stamp}`);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", text)).toHex().slice(0, 16);
  const path = join(folder, `torch_shim_${digest}.so`);
  if (await isFile(path)) return path;
  const failed = `Cannot build the shim for libtorch in '${torch.libraries}'`;
  const scratch = await makeScratch(folder, failed);
  try {
    const input = join(scratch, "shim.cc");
    const output = join(scratch, "shim.so");
    await Deno.writeTextFile(input, source);
    const failure = await compile(await compilerArguments(torch, { input, output }));
    if (failure !== "") throw new Error(`${failed}: ${failure}`);
    // Whole, or not at all: others may look for it now.
    await Deno.rename(output, path);
    return path;
  } finally {
    await Deno.remove(scratch, { recursive: true });
  }
}

async function makeScratch(folder: string, failed: string): Promise<string> {
  try {
    await Deno.mkdir(folder, { recursive: true });
    return await Deno.makeTempDir({ dir: folder, prefix: "torch_shim_" });
  } catch (error) {
    throw new Error(
      `${failed}: folder '${folder}' cannot be written (${wordsOf(error)}); ` +
        `--backend-config=pytorch,cache=FOLDER names another one`,
      { cause: error },
    );
  }
}

async function compilerArguments(
  { headers, libraries, stamp }: TorchFolders,
  { input, output }: { readonly input: string; readonly output: string },
): Promise<string[]> {
  const include = [headers, join(headers, "torch/csrc/api/include")];
  const version = /VERSION_MAJOR (\d+)[^]*VERSION_MINOR (\d+)/.exec(stamp);
  const number = version === null ? 0 : Number(version[1]) + Number(version[2]) / 100;
  const abi = await usesNewStrings(libraries) ? 1 : 0;
  return [
    number >= FIRST_WITH_CPP20 ? "-std=c++20" : "-std=c++17",
    `-D_GLIBCXX_USE_CXX11_ABI=${abi}`,
    ...["-O1", "-fPIC", "-shared", "-w", "-o", output, input],
    ...include.flatMap((each) => ["-isystem", each]),
    ...[`-L${libraries}`, "-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10"],
    `-Wl,-rpath,${libraries}`,
  ];
}

/** Packages from PyPI before 2.6 were compiled with the `std::string` of old compilers. */
async function usesNewStrings(libraries: string): Promise<boolean> {
  try {
    const bytes = await Deno.readFile(join(libraries, "libc10.so"));
    return new TextDecoder("latin1").decode(bytes).includes("St7__cxx1112basic_string");
  } catch {
    return true;
  }
}

/** "" = done, else why not. */
async function compile(args: readonly string[]): Promise<string> {
  const compiler = Deno.env.get("CXX") || "g++";
  const { state } = await Deno.permissions.query({ name: "run", command: compiler });
  if (state !== "granted") return `'${compiler}' may not be run: --allow-run=${compiler} is needed`;
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
    return `'${compiler}' ended with ${code}: ${firstErrors(new TextDecoder().decode(stderr))}`;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) {
      return `there is no compiler '${compiler}'; 'apt-get install g++' brings it`;
    }
    return wordsOf(error);
  }
}

function firstErrors(output: string): string {
  const lines = output.split("\n").filter((line) => line.trim() !== "");
  const first = lines.findIndex((line) => /error|cannot find/i.test(line));
  return lines.slice(Math.max(first, 0), Math.max(first, 0) + 4).join("\n")
    .slice(0, MAX_MESSAGE_LENGTH);
}

function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function isFile(path: string): Promise<boolean> {
  try {
    return (await Deno.stat(path)).isFile;
  } catch {
    return false;
  }
}
