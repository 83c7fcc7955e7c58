import assert from "node:assert/strict";
import { openModelRepositories } from "./model_repositories.ts";
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "./options.ts";

const CONFIG = `backend: "fake" max_batch_size: 0
input { name: "IN" data_type: TYPE_FP32 dims: 1 }
output { name: "OUT" data_type: TYPE_FP32 dims: 1 }
`;
const ENSEMBLE = `platform: "ensemble"
input { name: "X" data_type: TYPE_FP32 dims: 1 }
output { name: "Y" data_type: TYPE_FP32 dims: 1 }
ensemble_scheduling { step { model_name: "part" model_version: -1
  input_map { key: "IN" value: "X" } output_map { key: "OUT" value: "Y" } } }
`;

/** Two repositories `a` and `b` in a temporary folder. */
class Folders implements AsyncDisposable {
  readonly root: string;
  readonly lines: string[] = [];

  private constructor(root: string) {
    this.root = root;
  }

  static async create(): Promise<Folders> {
    const root = await Deno.makeTempDir();
    for (const name of ["a", "b"]) await Deno.mkdir(`${root}/${name}`);
    return new Folders(root);
  }

  async model(path: string, config = CONFIG): Promise<void> {
    await Deno.mkdir(`${this.root}/${path}/1`, { recursive: true });
    await Deno.writeTextFile(`${this.root}/${path}/config.pbtxt`, config);
  }

  open(options: Partial<ServerOptions> = {}) {
    const note = (message: string) => void this.lines.push(message);
    const modelRepositories = ["a", "b"].map((name) => `${this.root}/${name}`);
    const log = { info: note, warning: note, error: note, verbose: () => {} };
    return openModelRepositories({ ...DEFAULT_SERVER_OPTIONS, modelRepositories, ...options }, log);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Deno.remove(this.root, { recursive: true });
  }
}

Deno.test("openModelRepositories() leaves out hidden folders, and those being written in poll mode", async () => {
  await using folders = await Folders.create();
  for (const name of [".git", "m", "n.tmp"]) await folders.model(`a/${name}`);
  const repository = folders.open();
  assert.deepEqual(await repository.list(), ["m", "n.tmp"]);
  await repository.list();
  assert.deepEqual(folders.lines, ["ignoring hidden directory '.git' of a model repository"]);
  assert.deepEqual(await folders.open({ modelControlMode: "poll" }).list(), ["m"]);
});

Deno.test("openModelRepositories() tells what a look saw and what is lost", async () => {
  await using folders = await Folders.create();
  for (const name of ["a/.git", "a/m", "a/twice", "b/twice"]) await folders.model(name);
  const repository = folders.open({ modelControlMode: "poll" });
  const { models, lost } = await repository.look();
  assert.deepEqual([...models.keys()], ["m", "twice"]);
  assert.deepEqual(models.get("twice")!.repositories, [`${folders.root}/a`, `${folders.root}/b`]);
  assert.equal(lost.size, 0);
  assert.equal((await repository.read("m")).stamp, models.get("m")!.stamp);
  await Deno.remove(`${folders.root}/b`, { recursive: true });
  const later = await repository.look();
  assert.deepEqual([...later.lost], [[`${folders.root}/b`, "No such file or directory"]]);
  assert.deepEqual(later.models.get("twice")!.repositories, [`${folders.root}/a`]);
});

Deno.test("openModelRepositories() keeps models by repository and name with namespacing", async () => {
  await using folders = await Folders.create();
  for (const name of ["a/part", "b/part", "a/only", "a/x::y"]) await folders.model(name);
  await folders.model("a/e", ENSEMBLE);
  await folders.model("b/f", ENSEMBLE);
  const [a, b] = [`${folders.root}/a`, `${folders.root}/b`];
  const repository = folders.open({ modelNamespacing: true });
  const ids = [`${a}::e`, `${a}::only`, `${a}::part`, `${b}::f`, `${b}::part`];
  assert.deepEqual(await repository.list(), ids);
  assert.match(folders.lines[0]!, /ignoring directory 'x::y': with --model-namespacing/);
  const namespaceOf = async (id: string) => {
    const { config, name } = await repository.read(id);
    assert.equal(name, id);
    const { schedulingChoice } = config;
    assert.equal(schedulingChoice.case, "ensembleScheduling");
    return (schedulingChoice.value as { step: { modelNamespace: string }[] }).step[0]!
      .modelNamespace;
  };
  assert.equal(await namespaceOf(`${a}::e`), a);
  assert.equal(await namespaceOf(`${b}::f`), b);
  await Deno.remove(`${a}/part`, { recursive: true });
  assert.equal(await namespaceOf(`${a}::e`), b);
  await assert.rejects(repository.read(`${a}::part`), /model not found in any model repository/);
});

Deno.test("openModelRepositories() checks the labels of versions when a model is read", async () => {
  await using folders = await Folders.create();
  const labels = (text: string) =>
    `${CONFIG} parameters { key: "version_labels" value { string_value: "${text}" } }`;
  await folders.model("a/m", labels("stable=1"));
  assert.deepEqual((await folders.open().read("m")).versionLabels, new Map([["stable", 1]]));
  await folders.model("a/m", labels("stable=2"));
  await assert.rejects(
    folders.open().read("m"),
    /names version 2, which is not served.*version_labels/s,
  );
});
