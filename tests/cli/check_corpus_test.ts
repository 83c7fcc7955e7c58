import assert from "node:assert/strict";
import { createServer, type StartedModel } from "../../mod.ts";
import { type BrokenCase, writeCase } from "./broken_repositories/broken_case.ts";
import { ENSEMBLE_CASES } from "./broken_repositories/ensemble_table.ts";
import { MODEL_CASES } from "./broken_repositories/model_table.ts";
import { SYNTAX_CASES } from "./broken_repositories/syntax_table.ts";
import { WORD_CASES } from "./broken_repositories/word_table.ts";

const CASES: readonly BrokenCase[] = [
  ...SYNTAX_CASES,
  ...WORD_CASES,
  ...MODEL_CASES,
  ...ENSEMBLE_CASES,
];

interface Fault {
  readonly severity: string;
  readonly repository: string;
  readonly model: string;
  readonly file: string;
  readonly line: number | null;
  readonly column: number | null;
  readonly message: string;
  readonly hint: string | null;
}

interface Report {
  readonly format: number;
  readonly ok: boolean;
  readonly models: number;
  readonly faults: readonly Fault[];
  readonly fixes: readonly { readonly file: string; readonly written: boolean }[];
}

async function runCheck(repositories: readonly string[], ...flags: string[]): Promise<Report> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: [
      "run",
      "-A",
      new URL("../../mod.ts", import.meta.url).pathname,
      "check",
      "--json",
      ...flags,
      ...repositories.map((path) => `--model-repository=${path}`),
    ],
    signal: AbortSignal.timeout(60_000),
  }).output();
  assert.equal(code, 1, new TextDecoder().decode(stderr));
  return JSON.parse(new TextDecoder().decode(stdout));
}

async function startedModels(repositories: readonly string[]): Promise<readonly StartedModel[]> {
  await using server = createServer({
    modelRepository: repositories,
    flags: ["--log-error=false"],
  });
  return (await server.start()).models;
}

async function contents(repositories: readonly string[]): Promise<Map<string, string>> {
  const texts = new Map<string, string>();
  for (const path of repositories) {
    const file = `${path}/${path.split("/").at(-1)}/config.pbtxt`;
    texts.set(
      path,
      new TextDecoder("latin1").decode(
        await Deno.readFile(file).catch(() => null) ?? new Uint8Array(),
      ),
    );
  }
  return texts;
}

Deno.test("check finds what is wrong in every broken repository, with its place, and --fix mends most", async (test) => {
  const root = await Deno.makeTempDir({ prefix: "nereid-broken-" });
  try {
    const repositories: string[] = [];
    for (const broken of CASES) repositories.push(await writeCase(root, broken));
    assert.ok(CASES.length >= 60);

    const report = await runCheck(repositories);
    const before = await startedModels(repositories);
    for (const broken of CASES) {
      const faults = report.faults.filter(({ repository, severity }) =>
        repository === `${root}/${broken.name}` && severity === "error"
      );
      await test.step(`check: ${broken.name}`, () => checkCase(broken, faults, before));
    }

    const fixed = await runCheck(repositories, "--fix");
    assert.ok(fixed.fixes.every(({ written }) => written));
    const after = await startedModels(repositories);
    const isReady = ({ name }: BrokenCase) =>
      after.some((model) => model.name === name && model.state === "READY");
    for (const broken of CASES) {
      await test.step(`fix: ${broken.name}`, () => {
        const left = fixed.faults.filter(({ model }) => model === broken.name);
        assert.equal(isReady(broken), broken.mended, JSON.stringify(left, null, 1));
        assert.equal(left.length === 0, broken.mended);
      });
    }
    const share = CASES.filter(isReady).length / CASES.length;
    assert.ok(share >= 0.8, `${share} of ${CASES.length} load`);

    const texts = await contents(repositories);
    assert.deepEqual((await runCheck(repositories, "--fix")).fixes, []);
    assert.deepEqual(await contents(repositories), texts);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});

/** The place is named, the words are those of the server, and the hint is there. */
function checkCase(
  broken: BrokenCase,
  faults: readonly Fault[],
  started: readonly StartedModel[],
): void {
  const shown = JSON.stringify(faults, null, 1);
  assert.ok(faults.length > 0, "nothing found");
  for (const { file, line, column, message } of faults) {
    assert.ok(file.startsWith("/") && message !== "", shown);
    assert.equal(line === null, column === null);
    const { isDirectory } = Deno.statSync(file);
    assert.equal(isDirectory, line === null, shown);
  }
  const places = faults.map(({ line, column }) => line === null ? "" : `${line}:${column}`);
  assert.ok(places.includes(broken.at), `${broken.at} is not in ${shown}`);
  const texts = faults.map(({ message, hint }) => `${message}; ${hint}`).join("\n");
  assert.ok(texts.includes(broken.says), `${broken.says} is not in ${shown}`);
  const reason = started.find(({ name }) => name === broken.name)?.reason ?? "";
  for (const line of reason.replace(/^[A-Z][A-Za-z ]+: /, "").split("\n  ")) {
    assert.ok(
      faults.some(({ message }) => line.includes(message)),
      `the server says "${line}", check ${shown}`,
    );
  }
}
