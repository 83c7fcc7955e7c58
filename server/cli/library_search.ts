import { join } from "node:path";
import type { KnownLibrary } from "./device_libraries.ts";
import { mayRun, type ProbeOptions, runProbe } from "./device_probe.ts";

/** A library of the inventory; found ones have a path, others a reason. */
export interface LibraryReport {
  readonly name: string;
  readonly path?: string | undefined;
  /** "" = it does not tell. */
  readonly version: string;
  readonly reason?: string | undefined;
  /** What brings it; of libraries that are missing. */
  readonly packages?: string | undefined;
  /** Backends that open it. */
  readonly backends: readonly string[];
}

/** A Python of this machine. */
export interface PythonReport {
  readonly executable: string;
  readonly version: string;
  readonly hasNumpy: boolean;
  /** Where its packages are. */
  readonly sitePackages: readonly string[];
}

const PYTHON_LIMIT_MS = 10_000;
const PYTHON_TEXT = `
import importlib.util, json, platform, site, sys, sysconfig
paths = sysconfig.get_paths()
found = [paths["purelib"], paths["platlib"], *site.getsitepackages(), site.getusersitepackages()]
print(json.dumps({"executable": sys.executable, "version": platform.python_version(),
    "hasNumpy": importlib.util.find_spec("numpy") is not None, "sitePackages": list(dict.fromkeys(found))}))
`;

/** Asks a Python about itself. @returns the reason when it cannot be asked. Never rejects. */
export async function findPython(executable: string): Promise<PythonReport | string> {
  if (!await mayRun(executable)) return "it may not be started here (--allow-run)";
  const limit = AbortSignal.timeout(PYTHON_LIMIT_MS);
  try {
    const { code, stdout, stderr } = await new Deno.Command(executable, {
      args: ["-c", PYTHON_TEXT],
      stdin: "null",
      stdout: "piped",
      stderr: "piped",
      signal: limit,
    }).output();
    const decoder = new TextDecoder();
    if (code === 0) return JSON.parse(decoder.decode(stdout)) as PythonReport;
    if (limit.aborted) return `no answer within ${PYTHON_LIMIT_MS / 1000} s`;
    return decoder.decode(stderr).trim().split("\n").at(-1) || `it ended with ${code}`;
  } catch (reason) {
    if (reason instanceof Deno.errors.NotFound) return `there is no '${executable}'`;
    return reason instanceof Error ? reason.message : String(reason);
  }
}

/** Looks for a library: environment variable, Python packages, the system's loader. Never rejects. */
export async function findLibrary(
  library: KnownLibrary,
  sitePackages: readonly string[],
  options: ProbeOptions = {},
): Promise<LibraryReport> {
  const { name, form, backends, packages } = library;
  const given = readVariable(library.variable);
  const wheels = given === undefined ? await findInWheels(library, sitePackages) : [];
  const candidates = given === undefined ? [...wheels, ...library.fileNames] : [given];
  const request = { what: "library", paths: candidates, form } as const;
  const answer = await runProbe(request, options);
  if (answer.error !== undefined || answer.path === undefined) {
    const hint = given === undefined ? "" : ` (${library.variable} is '${given}')`;
    const reason = `${answer.error ?? "not found"}${hint}`;
    return { name, version: "", reason, packages, backends };
  }
  const version = answer.version || await readVersionFile(library, answer.path, sitePackages);
  return { name, path: answer.path, version, backends };
}

function readVariable(name: string): string | undefined {
  return Deno.env.get(name) || undefined;
}

async function findInWheels(
  { wheelFolders, wheelFiles }: KnownLibrary,
  sitePackages: readonly string[],
): Promise<string[]> {
  const found: string[] = [];
  for (const site of sitePackages) {
    for (const folder of wheelFolders) {
      const names = await listFolder(join(site, folder));
      const wanted = names.filter((name) => wheelFiles.some((start) => name.startsWith(start)));
      found.push(...wanted.sort().reverse().map((name) => join(site, folder, name)));
    }
  }
  return found;
}

async function listFolder(path: string): Promise<string[]> {
  try {
    return (await Array.fromAsync(Deno.readDir(path))).map(({ name }) => name);
  } catch {
    return [];
  }
}

/** A version out of a Python file beside the library, or out of its file name. */
async function readVersionFile(
  { versionFile }: KnownLibrary,
  path: string,
  sitePackages: readonly string[],
): Promise<string> {
  const site = sitePackages.find((each) => path.startsWith(`${each}/`));
  if (site !== undefined && versionFile !== undefined) {
    const text = await Deno.readTextFile(join(site, versionFile)).catch(() => "");
    const match = /^__version__\s*=\s*'([^']+)'/m.exec(text);
    if (match !== null) return match[1]!;
  }
  return /\.so\.([0-9][0-9.]*)$/.exec(path)?.[1] ?? "";
}
