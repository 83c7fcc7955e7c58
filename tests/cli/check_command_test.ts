import assert from "node:assert/strict";
import { identityModel, IO } from "./broken_repositories/broken_case.ts";

const MOD = new URL("../../mod.ts", import.meta.url).pathname;

interface Run {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function run(...args: readonly string[]): Promise<Run> {
  const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", MOD, ...args],
    signal: AbortSignal.timeout(60_000),
    env: { NO_COLOR: "1" },
  }).output();
  const decoder = new TextDecoder();
  return { code, stdout: decoder.decode(stdout), stderr: decoder.decode(stderr) };
}

type Files = Readonly<Record<string, string | Uint8Array>>;

async function repositoryOf(files: Files): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await Deno.makeTempDir({ prefix: "nereid-check-" });
  for (const [name, content] of Object.entries(files)) {
    await Deno.mkdir(`${path}/${name.slice(0, name.lastIndexOf("/"))}`, { recursive: true });
    const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
    await Deno.writeFile(`${path}/${name}`, bytes);
  }
  return { path, [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }) };
}

const GOOD = `backend: "identity"\n${IO}`;
const TYPO = `# by hand\nbackend: "identity"\nmax_batchsize: 8\n${IO}`;

Deno.test("check exits with 0 when nothing is wrong, 1 at faults, 2 when misused", async () => {
  await using repository = await repositoryOf({ "good/config.pbtxt": GOOD, "good/1/keep": "" });
  const flag = `--model-repository=${repository.path}`;
  const good = await run("check", flag, "--http-port=1234", "--log-verbose=1");
  assert.equal(good.code, 0, good.stderr);
  assert.match(good.stdout, /1 model checked, no faults/);
  for (const args of [["check"], ["check", flag, "--fax"], ["check", flag, "stray"]]) {
    const misused = await run(...args);
    assert.equal(misused.code, 2, args.join(" "));
    assert.match(misused.stderr, /Usage: nereid check/);
  }
  const help = await run("check", "--help");
  assert.equal(help.code, 0);
  assert.match(help.stdout, /--dry-run/);
  assert.match((await run("--help")).stderr, /nereid check/);
  const missing = await run("check", flag, "--model-repository=/no/such/folder");
  assert.equal(missing.code, 1);
  assert.match(missing.stdout, /\/no\/such\/folder: error: .*does not exist/);
});

Deno.test("check prints file:line:column, message, hint; --dry-run writes nothing; --fix does", async () => {
  await using repository = await repositoryOf({ "m/config.pbtxt": TYPO, "m/1/keep": "" });
  const { path } = repository;
  const flag = `--model-repository=${path}`;
  const file = `${path}/m/config.pbtxt`;
  const plain = await run("check", flag);
  assert.equal(plain.code, 1);
  assert.ok(
    plain.stdout.startsWith(
      `${file}:3:1: error: max_batchsize: unknown field, ModelConfig has no field max_batchsize\n` +
        `    did you mean max_batch_size?\n    --fix can mend this\n`,
    ),
    plain.stdout,
  );
  const dry = await run("check", flag, "--fix", "--dry-run");
  assert.equal(dry.code, 1);
  assert.match(dry.stdout, /^--- .*\n\+\+\+ .*\n@@ -1,5 \+1,5 @@\n/);
  assert.match(dry.stdout, /\n-max_batchsize: 8\n\+max_batch_size: 8\n/);
  assert.equal(await Deno.readTextFile(file), TYPO);
  const fixed = await run("check", flag, "--fix");
  assert.equal(fixed.code, 0, fixed.stdout);
  assert.equal(await Deno.readTextFile(file), TYPO.replace("batchsize", "batch_size"));
  const left = (await Array.fromAsync(Deno.readDir(`${path}/m`))).map(({ name }) => name).sort();
  assert.deepEqual(left, ["1", "config.pbtxt"], "nothing else is left behind");
  const again = await run("check", flag, "--fix");
  assert.equal(again.stdout, "1 model checked, no faults\n");
});

Deno.test("check --fix leaves alone what it must not write", async () => {
  await using outside = await repositoryOf({ "x/config.pbtxt": TYPO });
  const huge = `${TYPO}${"# filler\n".repeat(150_000)}`;
  await using repository = await repositoryOf({
    "locked/config.pbtxt": TYPO,
    "locked/1/keep": "",
    "linked/1/keep": "",
    "inner/1/keep": "",
    "huge/config.pbtxt": huge,
    "huge/1/keep": "",
    "folder/config.pbtxt/x": "",
    "folder/1/keep": "",
  });
  const { path } = repository;
  await Deno.chmod(`${path}/locked/config.pbtxt`, 0o444);
  await Deno.symlink(`${outside.path}/x/config.pbtxt`, `${path}/linked/config.pbtxt`);
  await Deno.writeTextFile(`${path}/inner/real.txt`, TYPO);
  await Deno.symlink("real.txt", `${path}/inner/config.pbtxt`);
  const { code, stdout } = await run("check", "--fix", `--model-repository=${path}`);
  assert.equal(code, 1);
  assert.match(stdout, /locked\/config\.pbtxt: error: cannot mend this file: .*read-only/);
  assert.match(stdout, /linked: error: .*leads out of the directory/);
  assert.match(stdout, /huge\/config\.pbtxt:3:1: error/);
  assert.match(stdout, /folder: error: .*Is a directory/);
  assert.equal(await Deno.readTextFile(`${path}/locked/config.pbtxt`), TYPO);
  assert.equal(await Deno.readTextFile(`${outside.path}/x/config.pbtxt`), TYPO);
  assert.equal(await Deno.readTextFile(`${path}/huge/config.pbtxt`), huge);
  assert.equal((await Deno.lstat(`${path}/inner/config.pbtxt`)).isSymlink, true);
  assert.match(await Deno.readTextFile(`${path}/inner/real.txt`), /max_batch_size: 8/);
});

Deno.test("check tells duplicate models, circles, warmup faults and folders that are no versions", async () => {
  const ensemble = (model: string) =>
    `platform: "ensemble"\n${IO}ensemble_scheduling { step { model_name: "${model}" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } } }\n`;
  await using first = await repositoryOf({
    "twin/config.pbtxt": GOOD,
    "twin/1/keep": "",
    "ring_a/config.pbtxt": ensemble("ring_b"),
    "ring_a/1/keep": "",
    "ring_b/config.pbtxt": ensemble("ring_a"),
    "ring_b/1/keep": "",
    "warm/config.pbtxt":
      `${GOOD}model_warmup { name: "w" batch_size: 1 inputs { key: "X" value { data_type: TYPE_FP32 dims: [ 4 ] input_data_file: "none" } } }\n`,
    "warm/1/keep": "",
    "odd/config.pbtxt": GOOD,
    "odd/1/keep": "",
    "odd/01/keep": "",
  });
  await using second = await repositoryOf({ "twin/config.pbtxt": GOOD, "twin/1/keep": "" });
  const repositories = [first, second].map(({ path }) => `--model-repository=${path}`);
  const { code, stdout } = await run("check", ...repositories);
  assert.equal(code, 1);
  for (const { path } of [first, second]) {
    assert.ok(stdout.includes(`${path}/twin: error: model appears in two or more repositories`));
  }
  assert.match(stdout, /ring_a\/config\.pbtxt:4:\d+: error: .*circular dependency/);
  assert.match(stdout, /warm\/config\.pbtxt:4:\d+: error: model_warmup/);
  assert.match(stdout, /odd: warning: ignore version directory '01'/);
});

Deno.test("check obeys --model-config-name, --disable-auto-complete-config and --backend-config", async () => {
  await using repository = await repositoryOf({
    "m/config.pbtxt": GOOD,
    "m/configs/other.pbtxt": TYPO,
    "m/1/keep": "",
    "bare/1/model.onnx": identityModel(),
  });
  const flag = `--model-repository=${repository.path}`;
  assert.equal((await run("check", flag)).code, 0);
  const named = await run("check", flag, "--model-config-name=other");
  assert.match(named.stdout, /m\/configs\/other\.pbtxt:3:1: error/);
  const strict = await run("check", flag, "--disable-auto-complete-config");
  assert.match(strict.stdout, /bare: error: failed to open text file for read bare\/config\.pbtxt/);
  const setting = await run("check", flag, "--backend-config=default-max-batch-size=many");
  assert.match(setting.stdout, /bare: error: failed to convert 'many' to integral number/);
});

Deno.test("explain tells the origin of every value", async () => {
  await using repository = await repositoryOf({
    "m/config.pbtxt":
      `# served\nmax_batch_size: 0\nparameters { key: "a" value { string_value: "b" } }\n`,
    "m/1/model.onnx": identityModel(),
    "bad/config.pbtxt": "max_batch_size: ${size}\n",
    "bad/1/model.onnx": identityModel(),
  });
  const flag = `--model-repository=${repository.path}`;
  const text = await run("explain", "m", flag);
  assert.equal(text.code, 0, text.stderr);
  const line = (start: string) =>
    text.stdout.split("\n").find((each) => each.startsWith(start))?.replace(/ +# /, " # ");
  assert.equal(line("name:"), `name: "m" # auto-complete, from the name of the folder`);
  assert.equal(
    line("backend:"),
    `backend: "onnxruntime" # auto-complete, from the files of the model`,
  );
  assert.equal(line("max_batch_size:"), `max_batch_size: 4 # auto-complete, from the model`);
  assert.equal(line("input[0].name"), `input[0].name: "X" # auto-complete, from the model`);
  assert.equal(line(`parameters["a"]`), `parameters["a"].string_value: "b" # config.pbtxt:3:45`);
  assert.equal(line("instance_group[0].count"), `instance_group[0].count: 2 # default`);
  const json = await run(
    "explain",
    flag,
    "--json",
    "m",
    "--backend-config=onnxruntime,default-max-batch-size=16",
  );
  const document = JSON.parse(json.stdout);
  assert.deepEqual([document.format, document.model, document.version], [1, "m", 1]);
  const size = document.values.find(({ path }: { path: string }) => path === "max_batch_size");
  assert.deepEqual(size, {
    path: "max_batch_size",
    value: 16,
    origin: { kind: "flag", flag: "--backend-config default-max-batch-size=16" },
  });
  const bad = await run("explain", "bad", flag);
  assert.equal(bad.code, 1);
  assert.match(bad.stderr, /bad\/config\.pbtxt:1:17: error: max_batch_size: integer expected/);
  assert.equal((await run("explain", flag)).code, 2);
  assert.match((await run("explain", "none", flag)).stderr, /none: error: .*model not found/);
  assert.match((await run("explain", "m", "--version=7", flag)).stderr, /version 7 is not served/);
});

Deno.test("explain completes an ensemble from the models of its steps", async () => {
  const steps = (model: string) =>
    `platform: "ensemble"\n${IO}ensemble_scheduling { step { model_name: "${model}" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" } } }\n`;
  await using repository = await repositoryOf({
    "part/config.pbtxt": `${GOOD}model_transaction_policy { decoupled: true }\n`,
    "part/1/keep": "",
    "whole/config.pbtxt": steps("part"),
    "whole/1/keep": "",
    "torn/config.pbtxt": steps("par"),
    "torn/1/keep": "",
  });
  const flag = `--model-repository=${repository.path}`;
  const { code, stdout, stderr } = await run("explain", "whole", flag);
  assert.equal(code, 0, stderr);
  assert.match(
    stdout,
    /^model_transaction_policy\.decoupled: true +# auto-complete, from the mod/m,
  );
  assert.match(
    stdout,
    /^ensemble_scheduling\.step\[0\]\.input_map\["X"\]: "X" +# config\.pbtxt:5/m,
  );
  const torn = await run("explain", "torn", flag);
  assert.equal(torn.code, 1);
  assert.match(torn.stderr, /torn\/config\.pbtxt:4:\d+: error: .*not available or ambiguous: par/);
});
