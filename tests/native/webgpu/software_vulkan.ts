/**
 * A Vulkan driver that runs on the CPU (Mesa's lavapipe, from 25 on), fetched from Debian and unpacked into the cache
 * of the checkout: nothing is installed.
 */
import { dirname, join } from "node:path";

const CACHE = new URL("../../../.cache/software_vulkan", import.meta.url).pathname;
const LIMIT_MS = 120_000;
/** The first version that ONNX Runtime takes. */
const MIN_VERSION = 25;

/** Variables of a process that shall find the driver, or why there is none. */
export async function softwareVulkan(): Promise<Record<string, string> | string> {
  if (Deno.build.os !== "linux") return "the driver is fetched for Linux only";
  const known = await findDriver();
  if (known !== undefined) return environmentOf(known);
  try {
    await fetchDriver();
  } catch (error) {
    return `Mesa cannot be fetched from Debian: ${(error as Error).message}`;
  }
  const driver = await findDriver();
  return driver === undefined ? "Mesa's package holds no lavapipe" : environmentOf(driver);
}

/** Path of the unpacked driver; the file with its description is written last. */
async function findDriver(): Promise<string | undefined> {
  try {
    const description = JSON.parse(await Deno.readTextFile(join(CACHE, "driver.json")));
    const path: string = description.ICD.library_path;
    return (await Deno.stat(path)).isFile ? path : undefined;
  } catch {
    return undefined;
  }
}

function environmentOf(driver: string): Record<string, string> {
  const inherited = Deno.env.get("LD_LIBRARY_PATH");
  const folder = dirname(driver);
  return Object.fromEntries([
    ["VK_ICD_FILENAMES", join(CACHE, "driver.json")],
    ["VK_DRIVER_FILES", join(CACHE, "driver.json")],
    ["LD_LIBRARY_PATH", inherited ? `${folder}:${inherited}` : folder],
    ["XDG_RUNTIME_DIR", CACHE],
  ]);
}

async function fetchDriver(): Promise<void> {
  await Deno.remove(CACHE, { recursive: true }).catch(() => {});
  for (const folder of ["lists/partial", "cache/archives/partial", "root"]) {
    await Deno.mkdir(join(CACHE, folder), { recursive: true });
  }
  const { codename, mirror } = await readSources();
  const key = "[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]";
  const suites = [codename, `${codename}-backports`];
  const lines = suites.map((suite) => `deb ${key} ${mirror} ${suite} main`);
  await Deno.writeTextFile(join(CACHE, "sources.list"), lines.join("\n") + "\n");
  const options = [
    `Dir::Etc::sourcelist=${CACHE}/sources.list`,
    "Dir::Etc::sourceparts=/dev/null",
    `Dir::State::lists=${CACHE}/lists`,
    `Dir::Cache=${CACHE}/cache`,
    "Debug::NoLocking=1",
    "APT::Sandbox::User=",
    "Acquire::Languages=none",
  ].flatMap((option) => ["-o", option]);
  await run("apt-get", [...options, "-q", "update"]);
  const suite = await suiteOfMesa(options, suites);
  // What the driver needs and the system lacks comes with it.
  await run("apt-get", [
    ...options,
    ...["-q", "-y", "--download-only", "--no-install-recommends", "--reinstall", "install"],
    `mesa-vulkan-drivers/${suite}`,
    "libvulkan1",
  ]);
  const archives = join(CACHE, "cache/archives");
  for await (const { name } of Deno.readDir(archives)) {
    // The system's own must not be hidden by others.
    if (!name.endsWith(".deb") || /^(?:libc6|libgcc-s1|libstdc\+\+6)_/.test(name)) continue;
    await run("dpkg-deb", ["-x", join(archives, name), join(CACHE, "root")]);
  }
  const library = await findFile(join(CACHE, "root"), "libvulkan_lvp.so");
  if (library === undefined) throw new Error("no libvulkan_lvp.so in it");
  const icd = { ["library_path"]: library, ["api_version"]: "1.3.0" };
  const description = { ["file_format_version"]: "1.0.0", ICD: icd };
  await Deno.writeTextFile(join(CACHE, "driver.json"), JSON.stringify(description));
  for (const folder of ["lists", "cache"]) {
    await Deno.remove(join(CACHE, folder), { recursive: true });
  }
}

/** Debian's codename and the mirror that this system is set to. */
async function readSources(): Promise<{ codename: string; mirror: string }> {
  const release = await Deno.readTextFile("/etc/os-release");
  const codename = /^VERSION_CODENAME=(\S+)$/m.exec(release)?.[1];
  if (!/^ID=debian$/m.test(release) || codename === undefined) {
    throw new Error("this system is no Debian");
  }
  const files = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
  for (const file of files) {
    const text = await Deno.readTextFile(file).catch(() => "");
    const match = /^URIs:\s*(\S+)$/m.exec(text) ?? /^deb\s+(?:\[[^\]]*\]\s+)?(\S+)/m.exec(text);
    if (match?.[1] !== undefined) return { codename, mirror: match[1] };
  }
  throw new Error("no mirror is set in /etc/apt");
}

/** The first suite whose Mesa is new enough. */
async function suiteOfMesa(options: readonly string[], suites: readonly string[]): Promise<string> {
  const table = await run("apt-cache", [...options, "madison", "mesa-vulkan-drivers"]);
  for (const suite of suites) {
    const line = table.split("\n").find((each) => each.includes(` ${suite}/main `));
    const version = Number(/\|\s*(?:\d+:)?(\d+)\./.exec(line ?? "")?.[1] ?? 0);
    if (version >= MIN_VERSION) return suite;
  }
  throw new Error(`no mesa-vulkan-drivers from ${MIN_VERSION} on in ${suites.join(" or ")}`);
}

async function findFile(folder: string, wanted: string): Promise<string | undefined> {
  for await (const { name, isDirectory } of Deno.readDir(folder)) {
    const path = join(folder, name);
    if (name === wanted) return path;
    const inner = isDirectory ? await findFile(path, wanted) : undefined;
    if (inner !== undefined) return inner;
  }
}

async function run(program: string, args: readonly string[]): Promise<string> {
  const signal = AbortSignal.timeout(LIMIT_MS);
  const command = new Deno.Command(program, { args: [...args], stdin: "null", signal });
  const { success, stdout, stderr } = await command.output();
  const decoder = new TextDecoder();
  if (success) return decoder.decode(stdout);
  const reason = decoder.decode(stderr).trim().split("\n").at(-1);
  throw new Error(`${program} ${args.at(-1)} failed: ${reason}`);
}

/** For tests in other languages: prints the variables as JSON, or why there is no driver on standard error. */
if (import.meta.main) {
  const result = await softwareVulkan();
  const isReason = typeof result === "string";
  const stream = isReason ? Deno.stderr : Deno.stdout;
  await stream.write(new TextEncoder().encode(isReason ? result : JSON.stringify(result)));
  Deno.exit(isReason ? 1 : 0);
}
