const PROJECT = new URL("../", import.meta.url).pathname;

/** What the tests import from PyPI, pinned. */
const REQUIREMENTS = `${PROJECT}tests/requirements.txt`;

/** Interpreter of the tests' own virtual environment. */
export const PYTHON = Deno.build.os === "windows"
  ? `${PROJECT}.venv/Scripts/python.exe`
  : `${PROJECT}.venv/bin/python`;

/** Makes `.venv` with the pinned packages unless it is there; returns its interpreter. */
export async function ensurePython(print: (line: string) => void): Promise<string> {
  const stamp = `${PROJECT}.venv/packages.txt`;
  const wanted = await Deno.readTextFile(REQUIREMENTS);
  if (await Deno.readTextFile(stamp).catch(() => "") === wanted) return PYTHON;
  print("setting up .venv with the packages of tests/requirements.txt …");
  await run("python3", ["-m", "venv", `${PROJECT}.venv`]);
  const quiet = ["-q", "--disable-pip-version-check"];
  await run(PYTHON, ["-m", "pip", "install", ...quiet, "-r", REQUIREMENTS]);
  await Deno.writeTextFile(stamp, wanted);
  return PYTHON;
}

async function run(command: string, args: readonly string[]): Promise<void> {
  const { code, stdout, stderr } = await capture(command, args);
  if (code === 0) return;
  const said = [stdout, stderr].map((bytes) => new TextDecoder().decode(bytes).trim()).join("\n");
  const end = said.split("\n").slice(-10).join("\n");
  throw new Error(`${command} ${args.join(" ")} ended with status ${code}\n${end}`);
}

async function capture(command: string, args: readonly string[]): Promise<Deno.CommandOutput> {
  try {
    return await new Deno.Command(command, { args: [...args], stdin: "null" }).output();
  } catch (reason) {
    throw new Error(`Python 3 with venv is needed; ${(reason as Error).message}`);
  }
}
