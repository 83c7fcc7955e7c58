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
  print("setting up .venv …");
  await run("python3", ["-m", "venv", `${PROJECT}.venv`]);
  const quiet = ["-q", "--disable-pip-version-check"];
  await run(PYTHON, ["-m", "pip", "install", ...quiet, "-r", REQUIREMENTS]);
  await Deno.writeTextFile(stamp, wanted);
  return PYTHON;
}

async function run(command: string, args: readonly string[]): Promise<void> {
  const { code } = await new Deno.Command(command, { args: [...args], stdin: "null" }).output();
  if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with status ${code}`);
}
