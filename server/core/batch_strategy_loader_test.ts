import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import type { ServerError } from "../../proto/status.ts";
import { type BatchStrategyParts, loadBatchStrategy } from "./batch_strategy_loader.ts";
import { FakeClock } from "./fake_clock.ts";

const PASS = "export function includeRequest(): boolean { return true; }\n";

interface Loading extends Partial<BatchStrategyParts> {
  readonly parameters?: Readonly<Record<string, string>>;
  readonly choice?: "dynamicBatching" | "sequenceBatching" | "default";
}

/** A model folder `m` with version 1, and what was logged. */
class ModelFolder implements AsyncDisposable {
  readonly lines: string[] = [];
  readonly clock = new FakeClock();
  readonly #root: string;

  private constructor(root: string) {
    this.#root = root;
  }

  static async make(files: Readonly<Record<string, string>>): Promise<ModelFolder> {
    const folder = new ModelFolder(await Deno.makeTempDir());
    await Deno.mkdir(`${folder.#root}/m/1`, { recursive: true });
    for (const [path, text] of Object.entries(files)) await folder.write(path, text);
    return folder;
  }

  get path(): string {
    return `${this.#root}/m`;
  }

  async write(path: string, text: string): Promise<void> {
    const folder = path.slice(0, path.lastIndexOf("/") + 1);
    await Deno.mkdir(`${this.#root}/${folder}`, { recursive: true });
    await Deno.writeTextFile(`${this.#root}/${path}`, text);
  }

  load({ parameters = {}, choice = "dynamicBatching", ...parts }: Loading = {}) {
    const entries = Object.entries(parameters).map(([key, stringValue]) => [key, { stringValue }]);
    const config = create(ModelConfigSchema, {
      name: "m",
      backend: "identity",
      maxBatchSize: 8,
      ...(choice === "default" ? {} : { schedulingChoice: { case: choice, value: {} } }),
      parameters: Object.fromEntries(entries),
    });
    const note = (letter: string) => (message: string) => void this.lines.push(letter + message);
    return loadBatchStrategy({
      name: "m",
      version: 1,
      modelDirectory: this.path,
      versionDirectory: `${this.path}/1`,
      config,
    }, {
      clock: this.clock,
      log: { info: note("I "), warning: note("W "), error: note("E "), verbose: () => {} },
      isUploaded: false,
      backendDirectory: `${this.#root}/backends`,
      ...parts,
    });
  }

  async failure(loading?: Loading): Promise<string> {
    const reason = await this.load(loading).then(() => undefined, (error: ServerError) => error);
    return `${reason?.code} ${reason?.message}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.#root, { recursive: true });
  }
}

/** A strategy that says which one it is. */
function named(name: string): string {
  return `export const start = () => "${name}";\n${PASS}`;
}

Deno.test("loadBatchStrategy() looks at the parameter, then the version, the model and the backend", async () => {
  await using folder = await ModelFolder.make({
    "backends/identity/batching.ts": named("backend"),
  });
  const which = async (loading?: Loading) => (await folder.load(loading))?.start();
  assert.equal(await which(), "backend");
  assert.equal(await which({ backendDirectory: undefined }), undefined);
  await folder.write("m/batching.ts", named("model"));
  assert.equal(await which(), "model");
  await folder.write("m/1/batching.ts", named("version"));
  assert.equal(await which(), "version");
  await folder.write("m/batchers/mine.ts", named("parameter"));
  const parameter = (path: string) => ({ parameters: { TRITON_BATCH_STRATEGY_PATH: path } });
  assert.equal(await which(parameter("batchers/mine.ts")), "parameter");
  assert.equal(await which(parameter(`${folder.path}/batchers/mine.ts`)), "parameter");
  assert.match(
    folder.lines.at(-1)!,
    /^I Loading custom batching strategy \/.*\/m\/batchers\/mine\.ts for model m$/,
  );
});

Deno.test("loadBatchStrategy() takes no file from outside of the model's folder", async () => {
  await using folder = await ModelFolder.make({ "other/batching.ts": PASS, "m/b.so": "" });
  const at = (path: string) => folder.failure({ parameters: { TRITON_BATCH_STRATEGY_PATH: path } });
  for (
    const path of [
      "../other/batching.ts",
      `${folder.path}/../other/batching.ts`,
      "/etc/passwd",
      "x.ts",
    ]
  ) {
    assert.equal(await at(path), `NOT_FOUND Batching library path not found: ${path}`);
  }
  assert.match(await at("b.so"), /^UNSUPPORTED .*'b\.so'.*native libraries are not supported/);
  await Deno.symlink("../other/batching.ts", `${folder.path}/batching.ts`);
  assert.match(
    await folder.failure(),
    /^INVALID_ARG m\/batching\.ts is a link that leads out of the directory/,
  );
});

Deno.test("loadBatchStrategy() tells the place of what is wrong in the file", async () => {
  const prefix = "custom batching strategy m/1/batching.ts for model 'm'";
  const cases: Readonly<Record<string, readonly [string, RegExp]>> = {
    syntax: ["export function includeRequest() {\n  return a +;\n}", /m\/1\/batching\.ts:2:13/],
    "missing import": [
      `import { x } from "./x.ts";\nexport const used = x;\n${PASS}`,
      /m\/1\/x\.ts.*m\/1\/batching\.ts:1:19/s,
    ],
    "thrown at the top": [
      "\nthrow new RangeError('no');",
      /RangeError: no at m\/1\/batching\.ts:2:7/,
    ],
    "nothing exported": [
      "function includeRequest() {}",
      /must export .* at m\/1\/batching\.ts:1:10/,
    ],
    "no such function": [
      "export const x = 1;",
      /must export a function includeRequest\(request, batch\)/,
    ],
    "no function": ["export const includeRequest = 1;", /got number at m\/1\/batching\.ts:1:14/],
    "async includeRequest": [
      "// includeRequest\nexport async function includeRequest() {}",
      /includeRequest must return at once, .* at m\/1\/batching\.ts:2:23/,
    ],
    "async start": [
      `${PASS}export const start = async () => {};`,
      /start must .* at m\/1\/batching\.ts:2:14/,
    ],
    "generator": [
      `${PASS}export function* finish() {}`,
      /finish must .* at m\/1\/batching\.ts:2:18/,
    ],
    "initialize throws": [
      `${PASS}export function initialize() {\n  throw new Error("Failure test case");\n}`,
      /Failure test case at m\/1\/batching\.ts:3:9/,
    ],
    "initialize is asynchronous": [
      `${PASS}export function initialize() { return Promise.reject(new Error("x")); }`,
      /initialize returned a promise/i,
    ],
  };
  for (const [name, [text, expected]] of Object.entries(cases)) {
    await using folder = await ModelFolder.make({ "m/1/batching.ts": text });
    const failure = await folder.failure();
    assert.match(failure, expected, `${name}: ${failure}`);
    assert.ok(failure.startsWith(`INVALID_ARG failed to load ${prefix}: `), failure);
    assert.ok(!failure.includes("file://") && !failure.includes("\u001b"), failure);
  }
});

Deno.test("loadBatchStrategy() fails with the code that initialize gives its error", async () => {
  await using folder = await ModelFolder.make({
    "m/batching.ts": `${PASS}export function initialize() {
      throw Object.assign(new Error("no MAX_BATCH"), { code: "NOT_FOUND" });
    }`,
  });
  assert.match(await folder.failure(), /^NOT_FOUND .*no MAX_BATCH/);
});

Deno.test("loadBatchStrategy() does not wait for ever for a module", async () => {
  await using folder = await ModelFolder.make({
    "m/batching.ts": `${PASS}await new Promise((resolve) => globalThis.endTest = resolve);`,
  });
  const failure = folder.failure();
  const world = globalThis as unknown as { endTest?: () => void };
  // The module must be at its end before the time is: else it would wait when the test is over.
  while (world.endTest === undefined) await folder.clock.settle();
  await folder.clock.advance(10_000);
  assert.match(await failure, /it is not loaded after 10 s/);
  world.endTest();
});

Deno.test("loadBatchStrategy() loads a changed file anew", async () => {
  await using folder = await ModelFolder.make({ "m/batching.ts": named("old") });
  assert.equal((await folder.load())?.start(), "old");
  await folder.write("m/batching.ts", named("new"));
  assert.equal((await folder.load())?.start(), "new");
});

Deno.test("loadBatchStrategy() hands over the configuration, and what initialize returned", async () => {
  await using folder = await ModelFolder.make({
    "m/batching.ts": `export function initialize(context) {
      context.log.info("hello");
      const { modelName, modelVersion, maxBatchSize, parameters, config } = context;
      return [modelName, modelVersion, maxBatchSize, parameters.LIMIT, config.max_batch_size, config.backend];
    }
    export const start = (batcher) => batcher;
    export const includeRequest = () => true;
    export function finalize(batcher) { throw new Error("finalize of " + batcher[0]); }`,
  });
  const strategy = await folder.load({ parameters: { LIMIT: "96" } });
  assert.deepEqual(strategy?.start(), ["m", "1", 8, "96", 8, "identity"]);
  strategy![Symbol.dispose]();
  assert.deepEqual(folder.lines.slice(-2), [
    "I hello",
    "E custom batching strategy m/batching.ts of model 'm': finalize failed: finalize of m at m/batching.ts:8:47",
  ]);
});

Deno.test("loadBatchStrategy() tells failures once in a while, with the number of the others", async () => {
  await using folder = await ModelFolder.make({ "m/batching.ts": PASS });
  const strategy = (await folder.load())!;
  folder.lines.length = 0;
  for (let count = 0; count < 1000; count++) strategy.tellFailure("start", new Error("no"));
  await folder.clock.advance(10_000);
  strategy.tellFailure("includeRequest", "text");
  assert.deepEqual(folder.lines, [
    "E custom batching strategy m/batching.ts of model 'm': start failed: no",
    "E custom batching strategy m/batching.ts of model 'm': includeRequest failed: text (and 999 " +
    "failures more since the last line)",
  ]);
});

Deno.test("loadBatchStrategy() takes none that came with a load request, but that of its backend", async () => {
  await using folder = await ModelFolder.make({ "m/batching.ts": "throw new Error('ran')" });
  assert.match(
    await folder.failure({ isUploaded: true }),
    /^UNSUPPORTED custom batching strategy m\/batching\.ts came with the load request/,
  );
  await using other = await ModelFolder.make({ "backends/identity/batching.ts": named("backend") });
  assert.equal((await other.load({ isUploaded: true }))?.start(), "backend");
});

Deno.test("loadBatchStrategy() says when a strategy is not used; sequences have none", async () => {
  await using folder = await ModelFolder.make({ "m/batching.ts": PASS });
  assert.notEqual(await folder.load({ choice: "default" }), undefined);
  assert.match(folder.lines.at(-1)!, /^W .* is not used: model 'm' has no dynamic_batching$/);
  assert.equal(await folder.load({ choice: "sequenceBatching" }), undefined);
});

Deno.test("loadBatchStrategy() says that a native library is not used", async () => {
  await using folder = await ModelFolder.make({ "m/1/batchstrategy.so": "" });
  assert.equal(await folder.load(), undefined);
  assert.match(folder.lines.at(-1)!, /^W .*m\/1\/batchstrategy\.so.* batching\.ts/);
});
