/** What became of a step. */
export interface StepOutcome {
  readonly state: "passed" | "failed" | "skipped";
  /** What was seen, or why not. */
  readonly detail: string;
  /** Figures and versions for the file of results. */
  readonly values?: Readonly<Record<string, unknown>>;
}

/** What the steps work with. */
export interface CheckContext {
  /** For every process: where libraries and packages are. */
  readonly env: Readonly<Record<string, string>>;
  /** A folder for files, removed at the end. */
  readonly folder: string;
  readonly python: string;
  /** Stand-ins instead of a GPU. */
  readonly isStandIn: boolean;
}

/** One thing that is checked. */
export interface CheckStep {
  readonly name: string;
  readonly what: string;
  readonly limitSeconds: number;
  /** May throw; `signal` ends what it started. */
  readonly run: (context: CheckContext, signal: AbortSignal) => Promise<StepOutcome>;
}

/** A step with its outcome. */
export interface StepResult extends StepOutcome {
  readonly name: string;
  readonly seconds: number;
}

/** What a process gave. */
export interface CommandResult {
  readonly code: number;
  /** Of standard output; what a check says is there. */
  readonly stdout: string;
  readonly stderr: string;
}

const PROJECT = new URL("../../", import.meta.url).pathname;

/** Runs one step within its time and the time that is left; never rejects. */
export async function runStep(
  step: CheckStep,
  context: CheckContext,
  leftMs: number,
): Promise<StepResult> {
  const { name, limitSeconds } = step;
  const limitMs = Math.min(leftMs, limitSeconds * 1000);
  if (limitMs < 1000) return { name, seconds: 0, state: "skipped", detail: "the time is over" };
  const began = performance.now();
  const signal = AbortSignal.timeout(limitMs);
  let outcome: StepOutcome;
  try {
    outcome = await step.run(context, signal);
  } catch (reason) {
    outcome = {
      state: "failed",
      detail: reason instanceof Error ? reason.message : String(reason),
    };
  }
  if (signal.aborted && outcome.state === "failed") {
    outcome = { ...outcome, detail: `no end within ${Math.round(limitMs / 1000)} s` };
  }
  return { name, seconds: Math.round((performance.now() - began) / 100) / 10, ...outcome };
}

/** Runs a program in the folder of the project until `signal` ends it. @throws Error when there is no such program. */
export async function runCommand(
  command: readonly string[],
  env: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<CommandResult> {
  const [program, ...args] = command;
  const { code, stdout, stderr } = await new Deno.Command(program!, {
    args,
    cwd: PROJECT,
    env: { NO_COLOR: "1", ...env },
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    signal,
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

/** A program of the project, run by the Deno that runs this. */
export function denoCommand(...args: readonly string[]): string[] {
  return [Deno.execPath(), ...args];
}

/** The last line that holds JSON. @throws Error with the end of what was written instead. */
export function lastJson<T>({ code, stdout, stderr }: CommandResult): T {
  const line = stdout.trim().split("\n").reverse().find((each) => each.startsWith("{"));
  if (line !== undefined) return JSON.parse(line) as T;
  throw new Error(`There is no result (status ${code}): ${(stderr || stdout).trim().slice(-500)}`);
}

/** Of a runner of tests: its counts, as `deno test` and pytest print them. */
export function testOutcome({ code, stdout, stderr }: CommandResult): StepOutcome {
  const count = (word: string) => Number(new RegExp(`(\\d+) ${word}`).exec(stdout)?.[1] ?? 0);
  const [passed, failed, ignored] = [
    count("passed"),
    count("failed"),
    Math.max(count("ignored"), count("skipped")),
  ];
  const detail = `${passed} passed, ${failed} failed, ${ignored} skipped`;
  const values = { passed, failed, skipped: ignored };
  if (code !== 0 || failed > 0) {
    const end = `${stdout}\n${stderr}`.trim().slice(-800);
    return { state: "failed", detail: `${detail}: ${end}`, values };
  }
  return passed === 0 ? { state: "skipped", detail, values } : { state: "passed", detail, values };
}
