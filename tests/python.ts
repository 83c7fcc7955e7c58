const PROJECT = new URL("../", import.meta.url).pathname;

/** What the tests import from PyPI, pinned. */
export const PYTHON_PACKAGES = ["tritonclient[all]==2.73.0", "numpy==2.4.6", "onnx==1.23.2"];

/** Interpreter of the tests' own virtual environment. */
export const PYTHON = Deno.build.os === "windows"
  ? `${PROJECT}.venv/Scripts/python.exe`
  : `${PROJECT}.venv/bin/python`;

/** Makes `.venv` with the pinned packages unless it is there; returns its interpreter. */
export async function ensurePython(print: (line: string) => void): Promise<string> {
  const stamp = `${PROJECT}.venv/packages.txt`;
  const wanted = PYTHON_PACKAGES.join("\n");
  if (await Deno.readTextFile(stamp).catch(() => "") === wanted) return PYTHON;
  print("setting up .venv …");
  await run("python3", ["-m", "venv", `${PROJECT}.venv`]);
  await run(
    PYTHON,
    ["-m", "pip", "install", "-q", "--disable-pip-version-check"].concat(
      PYTHON_PACKAGES,
    ),
  );
  await Deno.writeTextFile(stamp, wanted);
  return PYTHON;
}

async function run(command: string, args: readonly string[]): Promise<void> {
  const { code } = await new Deno.Command(command, { args: [...args], stdin: "null" }).output();
  if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with status ${code}`);
}
