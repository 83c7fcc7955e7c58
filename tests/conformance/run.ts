/**
 * Runs the recorded suites against the server of this working tree. Last line: `N passed, N failed`.
 *
 *   deno run -A tests/conformance/run.ts [--suite=NAME] [--only=GLOB] [--port=N] [--details] [--take-out]
 */
import { parseArgs } from "node:util";
import { judgeCases, type PendingLists } from "./pending.ts";
import { type Suite, type SuiteContext, SUITES } from "./suites.ts";

const HERE = new URL(".", import.meta.url).pathname;
/** Where the copies come from: golden/http, golden/grpc, golden/config and golden/behaviour. */
const RECORDED = `${HERE}../../../shared/golden`;

interface Outcome {
  readonly passed: number;
  readonly problems: readonly string[];
}

async function runSuite(
  suite: Suite,
  context: SuiteContext,
  passing: Set<string>,
  withDetails: boolean,
): Promise<Outcome> {
  const waits = context.pending.suites[suite.name];
  if (waits !== undefined) {
    context.print(`${suite.name}: waits for ${waits}`);
    return { passed: 0, problems: [] };
  }
  const began = performance.now();
  let result;
  try {
    result = await suite.run(context);
  } catch (reason) {
    const text = reason instanceof Error ? reason.message : String(reason);
    return { passed: 0, problems: [`the suite could not be run: ${text}`] };
  }
  const { cases, deliberate } = context.pending;
  const listed = { ...cases[suite.name], ...deliberate[suite.name] };
  const expected = context.only === ""
    ? listed
    : Object.fromEntries(Object.entries(listed).filter(([name]) => result.cases.has(name)));
  const verdict = judgeCases(result.cases, expected);
  for (const [name, passed] of result.cases) {
    if (passed && listed[name] !== undefined) passing.add(`${suite.name} ${name}`);
  }
  for (const [name, details] of result.details) {
    if (listed[name] === undefined && withDetails) {
      context.print([`${suite.name} ${name}`, ...details].join("\n"));
    }
  }
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  context.print(
    `${suite.name}: ${verdict.passed} passed, ${verdict.problems.length} failed, ` +
      `${verdict.pending} wait for later features (${seconds} s)`,
  );
  return verdict;
}

/** Tells where the copies under this folder differ from the recorded originals, when those are there. */
async function compareWithRecorded(): Promise<string[]> {
  const exists = await Deno.stat(RECORDED).then(() => true, () => false);
  if (!exists) return [];
  const problems: string[] = [];
  for (const suite of ["http", "grpc", "config", "behaviour"]) {
    const { code, stdout } = await new Deno.Command("diff", {
      args: ["-rq", "-x", "__pycache__", `${RECORDED}/${suite}`, `${HERE}${suite}`],
    }).output();
    if (code !== 0) problems.push(new TextDecoder().decode(stdout).trim());
  }
  return problems;
}

/** Takes cases that pass now out of pending.json; nothing ever puts one in. */
async function takeOut(pending: PendingLists, passing: ReadonlySet<string>): Promise<void> {
  const keep = (lists: PendingLists["cases"]): PendingLists["cases"] =>
    Object.fromEntries(
      Object.entries(lists).map(([suite, cases]) => {
        const rest = Object.entries(cases).filter(([name]) => !passing.has(`${suite} ${name}`));
        return [suite, Object.fromEntries(rest)];
      }),
    );
  const rest = { ...pending, cases: keep(pending.cases), deliberate: keep(pending.deliberate) };
  await Deno.writeTextFile(`${HERE}pending.json`, JSON.stringify(rest, null, 2) + "\n");
}

/** Runs what the command line asks for; returns the exit code. */
async function main(args: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...args],
    options: {
      suite: { type: "string", multiple: true },
      only: { type: "string", default: "" },
      port: { type: "string", default: "8600" },
      details: { type: "boolean", default: false },
      "take-out": { type: "boolean", default: false },
    },
  });
  const print = (line: string): void => {
    Deno.stdout.writeSync(new TextEncoder().encode(line + "\n"));
  };
  const pending: PendingLists = JSON.parse(await Deno.readTextFile(`${HERE}pending.json`));
  const context = { pending, port: Number(values.port), only: values.only, print };
  const passing = new Set<string>();
  let passed = 0;
  const problems = (await compareWithRecorded()).map((line) => `copy: ${line}`);
  for (const suite of SUITES) {
    if (values.suite !== undefined && !values.suite.includes(suite.name)) continue;
    const outcome = await runSuite(suite, context, passing, values.details);
    passed += outcome.passed;
    problems.push(...outcome.problems.map((text) => `${suite.name}: ${text}`));
  }
  for (const problem of problems) print(`FAIL ${problem}`);
  if (values["take-out"] && passing.size > 0) await takeOut(pending, passing);
  print(`${passed} passed, ${problems.length} failed`);
  return problems.length === 0 ? 0 : 1;
}

if (import.meta.main) Deno.exit(await main(Deno.args));
