import { PYTHON as VENV_PYTHON } from "../python.ts";

const PYTHON = Deno.env.get("NEREID_PYTHON") ?? VENV_PYTHON;

/** Why tests that need Python with tritonclient cannot run; undefined when they can. */
export function missingTritonclient(): string | undefined {
  const args = ["-c", "import tritonclient.grpc"];
  try {
    if (new Deno.Command(PYTHON, { args, stderr: "null" }).outputSync().success) return undefined;
  } catch {
    // No such interpreter.
  }
  return `no Python with tritonclient at ${PYTHON}; set NEREID_PYTHON`;
}

/** Runs a script, gives it bytes on its standard input, and returns the lines it prints. */
export async function runPython(script: string, input = new Uint8Array()): Promise<string[]> {
  const child = new Deno.Command(PYTHON, {
    args: ["-c", script],
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const writer = child.stdin.getWriter();
  const written = writer.write(input).then(() => writer.close());
  const { success, stdout, stderr } = await child.output();
  await written;
  if (!success) throw new Error(new TextDecoder().decode(stderr));
  return new TextDecoder().decode(stdout).trim().split("\n");
}
