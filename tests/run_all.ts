/**
 * Sets up and runs every test of the project; the last line is `N passed, N failed`, the sum of the runners' counts.
 *
 *   deno run -A tests/run_all.ts [--only=RUNNER] …
 */
import { parseArgs } from "node:util";
import { ensurePython } from "./python.ts";
import { parseCount, type Runner, RUNNERS } from "./runners.ts";

const PROJECT = new URL("../", import.meta.url).pathname;

interface Outcome {
  readonly passed: number;
  readonly failed: number;
  readonly output: string;
  readonly fault: string | undefined;
}

function print(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(text + "\n"));
}

/** Passes output on as it comes, indented: the plain line with the count is the driver's own. Returns all of it. */
async function showIndented(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<string> {
  let output = "";
  let rest = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) {
    output += text;
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) print(`  ${line}`);
  }
  if (rest !== "") print(`  ${rest}`);
  return output;
}

/** Keeps output until it is its turn. Returns all of it. */
async function collect(stream: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<string> {
  let output = "";
  for await (const text of stream.pipeThrough(new TextDecoderStream())) output += text;
  return output;
}

/** Runs one runner. */
async function execute(
  runner: Runner,
  read: (stream: ReadableStream<Uint8Array<ArrayBuffer>>) => Promise<string>,
): Promise<Outcome> {
  const [command, ...args] = runner.command;
  const child = new Deno.Command(command!, {
    args,
    cwd: PROJECT,
    env: { NO_COLOR: "1", NEREID_SERVER: `${Deno.execPath()} run -A ${PROJECT}mod.ts` },
    stdin: "null",
    stdout: "piped",
    stderr: "inherit",
  }).spawn();
  const timer = setTimeout(() => child.kill("SIGKILL"), runner.limitMinutes * 60_000);
  const output = await read(child.stdout);
  const { code, signal } = await child.status;
  clearTimeout(timer);
  const count = parseCount(output);
  if (count === undefined) {
    const how = signal === "SIGKILL"
      ? `was ended after ${runner.limitMinutes} min`
      : `gave ${code}`;
    const fault = `${runner.name} gives no count (${how})`;
    return { passed: 0, failed: 0, output, fault };
  }
  const silent = code !== 0 && count.failed === 0;
  return {
    ...count,
    output,
    fault: silent ? `${runner.name} ends with status ${code}` : undefined,
  };
}

/** Runs what the command line asks for; returns the exit code. */
async function main(): Promise<number> {
  const { values } = parseArgs({
    args: [...Deno.args],
    options: { only: { type: "string", multiple: true } },
  });
  const names = RUNNERS.map(({ name }) => name);
  const unknown = values.only?.find((name) => !names.includes(name));
  if (unknown !== undefined) {
    print(`There is no runner ${unknown}; there are ${names.join(", ")}`);
    return 1;
  }
  const chosen = RUNNERS.filter((runner) => values.only?.includes(runner.name) ?? true);
  const noPython = chosen.some((runner) => runner.python === true)
    ? await ensurePython(print).then(() => "", (reason: Error) => reason.message)
    : "";
  const faults: string[] = [];
  const rows: string[] = [];
  let [passed, failed] = [0, 0];
  const run = async (runner: Runner, read: Parameters<typeof execute>[1]): Promise<Outcome> => {
    const began = performance.now();
    const outcome = runner.python === true && noPython !== ""
      ? { passed: 0, failed: 0, output: "", fault: `${runner.name} cannot run: ${noPython}` }
      : await execute(runner, read);
    const seconds = ((performance.now() - began) / 1000).toFixed(0).padStart(4);
    passed += outcome.passed;
    failed += outcome.failed;
    if (outcome.fault !== undefined) faults.push(outcome.fault);
    rows.push(
      `  ${runner.name.padEnd(16)} ${String(outcome.passed).padStart(5)} passed ` +
        `${String(outcome.failed).padStart(4)} failed  ${seconds} s`,
    );
    return outcome;
  };
  // What mostly waits for timeouts of models runs beside the others, and is shown after them.
  const beside = chosen.filter((runner) => runner.isBeside).map((runner) => ({
    runner,
    outcome: run(runner, collect),
  }));
  for (const runner of chosen.filter((each) => !each.isBeside)) {
    print(`\n== ${runner.name}: ${runner.what}`);
    await run(runner, showIndented);
  }
  for (const { runner, outcome } of beside) {
    const { output } = await outcome;
    print(`\n== ${runner.name}: ${runner.what}`);
    print(output.split("\n").map((line) => `  ${line}`).join("\n"));
  }
  print(`\n${rows.join("\n")}\n`);
  for (const fault of faults) print(`FAIL ${fault}`);
  // A runner without a count must not look like a success, so it counts as one failure.
  const total = failed + faults.length;
  print(`${passed} passed, ${total} failed`);
  return total === 0 && passed > 0 ? 0 : 1;
}

if (import.meta.main) Deno.exit(await main());
