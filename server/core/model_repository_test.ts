import { deepEqual, equal, match, ok, rejects } from "node:assert/strict";
import type { Log } from "./log.ts";
import { openModelRepository } from "./model_repository.ts";
import { DEFAULT_SERVER_OPTIONS, type ServerOptions } from "./options.ts";

/** Repositories in a temporary folder; `files` maps paths below it to contents, "" ending in / to folders. */
async function withRepositories(
  files: Readonly<Record<string, string>>,
  test: (root: string) => Promise<void>,
): Promise<void> {
  const root = await Deno.makeTempDir();
  try {
    for (const [path, content] of Object.entries(files)) {
      const target = `${root}/${path}`;
      await Deno.mkdir(target.slice(0, target.lastIndexOf("/")), { recursive: true });
      if (!path.endsWith("/")) await Deno.writeTextFile(target, content);
    }
    await test(root);
  } finally {
    await Deno.remove(root, { recursive: true });
  }
}

function collectWarnings(): Log & { readonly warnings: string[] } {
  const warnings: string[] = [];
  const ignore = () => {};
  return {
    warnings,
    info: ignore,
    error: ignore,
    verbose: ignore,
    warning: (message: string) => void warnings.push(message),
  } as unknown as Log & { readonly warnings: string[] };
}

function optionsFor(repositories: string[], more: Partial<ServerOptions> = {}): ServerOptions {
  return { ...DEFAULT_SERVER_OPTIONS, modelRepositories: repositories, ...more };
}

Deno.test("ModelRepository reads a model without a configuration", () =>
  withRepositories({ "r/m/1/model.onnx": "", "r/m/3/model.onnx": "" }, async (root) => {
    const repository = openModelRepository(optionsFor([`${root}/r`]), collectWarnings());
    deepEqual(await repository.list(), ["m"]);
    const model = await repository.read("m");
    equal(model.directory, `${root}/r/m`);
    deepEqual(model.versions, [3]);
    equal(model.config.backend, "onnxruntime");
    equal(model.config.name, "m");
  }));

Deno.test("ModelRepository lists several repositories together and refuses a model of two", () =>
  withRepositories(
    { "b/x/1/model.onnx": "", "b/two/1/model.onnx": "", "a/two/1/model.onnx": "", "a/f": "" },
    async (root) => {
      const options = optionsFor([`${root}/a`, `${root}/b`]);
      const repository = openModelRepository(options, collectWarnings());
      deepEqual(await repository.list(), ["two", "x"]);
      await rejects(repository.read("two"), /^ServerError: model appears in two or more/);
    },
  ));

Deno.test("ModelRepository takes only plain numbers for versions and warns once (D8)", () =>
  withRepositories(
    {
      "r/m/config.pbtxt": "version_policy { all { } }",
      "r/m/1/model.onnx": "",
      "r/m/10/model.onnx": "",
      "r/m/9/model.onnx": "",
      "r/m/01/": "",
      "r/m/-1/": "",
      "r/m/2_old/": "",
      "r/m/99999999999999999999/": "",
      "r/m/model/notes": "",
      "r/m/configs/x.pbtxt": "",
      "r/m/7": "a file",
    },
    async (root) => {
      const log = collectWarnings();
      const repository = openModelRepository(optionsFor([`${root}/r`]), log);
      deepEqual((await repository.read("m")).versions, [1, 9, 10]);
      await repository.read("m");
      const ignored = ["-1", "01", "2_old", "99999999999999999999", "model"];
      deepEqual(
        log.warnings,
        ignored.map((folder) =>
          `ignore version directory '${folder}' which ${
            folder === "01"
              ? "contains leading zeros in its directory name"
              : "fails to convert to integral number"
          } (model 'm')`
        ),
      );
    },
  ));

Deno.test("ModelRepository serves the versions of the policy", () =>
  withRepositories({ "r/m/1/model.onnx": "", "r/m/2/": "", "r/m/3/": "" }, async (root) => {
    const log = collectWarnings();
    const repository = openModelRepository(optionsFor([`${root}/r`]), log);
    const versionsFor = async (policy: string) => {
      await Deno.writeTextFile(`${root}/r/m/config.pbtxt`, `version_policy { ${policy} }`);
      return (await repository.read("m")).versions;
    };
    deepEqual(await versionsFor("latest { num_versions: 2 }"), [2, 3]);
    deepEqual(await versionsFor("latest { num_versions: 9 }"), [1, 2, 3]);
    deepEqual(await versionsFor(""), [1, 2, 3]);
    deepEqual(await versionsFor("specific { versions: [ 3, 7, 1 ] }"), [1, 3]);
    match(
      log.warnings[0] ?? "",
      /^version 7 is specified for model 'm', but the version directory/,
    );
    for (const policy of ["latest { }", "specific { }", "specific { versions: 7 }"]) {
      await rejects(
        versionsFor(policy),
        /at least one version must be available under the version policy of model 'm' \(m\/config\.pbtxt:1:1: version_policy\); version directories present: 1, 2, 3/,
      );
    }
  }));

Deno.test("ModelRepository reports all faults of a configuration together, with places", () =>
  withRepositories(
    {
      "r/m/1/model.onnx": "",
      "r/m/config.pbtxt": [
        `name: "other"`,
        `max_batch_size: -1`,
        `input { name: "A" data_type: TYPE_FP32 dims: 0 }`,
        `dynamic_batching { priority_levels: 2 bogus: 1 }`,
      ].join("\n"),
    },
    async (root) => {
      const repository = openModelRepository(optionsFor([`${root}/r`]), collectWarnings());
      await rejects(repository.read("m"), (error: Error) => {
        deepEqual(error.message.split("\n  ").map((line) => line.split(";")[0]), [
          "m/config.pbtxt:4:39: dynamic_batching.bogus: unknown field, ModelDynamicBatching has no field bogus",
          "'max_batch_size' must be non-negative value for other (m/config.pbtxt:2:17: max_batch_size)",
          "default priority level must be in range [1, 2] for other (m/config.pbtxt:4:1: dynamic_batching.default_priority_level)",
          "unexpected directory name 'm' for model 'other', directory name must equal model name (m/config.pbtxt:1:7: name)",
          "model input 'A' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for other (m/config.pbtxt:3:46: input[0].dims[0])",
        ]);
        return true;
      });
    },
  ));

Deno.test("ModelRepository uses configs/<name>.pbtxt where it is", () =>
  withRepositories(
    {
      "r/a/1/model.onnx": "",
      "r/a/config.pbtxt": "max_batch_size: 8",
      "r/a/configs/small.pbtxt": "max_batch_size: 2",
      "r/b/1/model.onnx": "",
      "r/b/config.pbtxt": "max_batch_size: 8",
    },
    async (root) => {
      const options = optionsFor([`${root}/r`], { modelConfigName: "small" });
      const repository = openModelRepository(options, collectWarnings());
      equal((await repository.read("a")).config.maxBatchSize, 2);
      equal((await repository.read("b")).config.maxBatchSize, 8);
      const wrong = () =>
        openModelRepository({ ...options, modelConfigName: "../x" }, collectWarnings());
      try {
        wrong();
        ok(false, "a path is no name");
      } catch (error) {
        match(String(error), /--model-config-name: invalid name '\.\.\/x'/);
      }
    },
  ));

Deno.test("ModelRepository needs the file when nothing is completed, and checks all of it", () =>
  withRepositories(
    {
      "r/none/1/model.onnx": "",
      "r/m/1/model.onnx": "",
      "r/m/config.pbtxt": `backend: "onnxruntime" input { name: "A" dims: 4 }`,
    },
    async (root) => {
      const options = optionsFor([`${root}/r`], { autoCompleteConfig: false });
      const repository = openModelRepository(options, collectWarnings());
      await rejects(
        repository.read("none"),
        /failed to open text file for read none\/config\.pbtxt: No such file or directory/,
      );
      await rejects(repository.read("m"), /model input 'A' must specify 'data_type' for m/);
    },
  ));

Deno.test("ModelRepository reads a configuration given instead of the file", () =>
  withRepositories(
    { "r/m/1/model.onnx": "", "r/m/config.pbtxt": "max_batch_size: 8" },
    async (root) => {
      const repository = openModelRepository(optionsFor([`${root}/r`]), collectWarnings());
      equal((await repository.read("m", { config: `{"maxBatchSize": 3}` })).config.maxBatchSize, 3);
      await rejects(repository.read("m", { config: "{" }), /Invalid config override: /);
      await rejects(
        repository.read("m", { config: `{"max_batchsize": 3}` }),
        /Invalid config override: unknown field.*did you mean max_batch_size\?/,
      );
    },
  ));

Deno.test("ModelRepository stays inside of the repository (D19)", () =>
  withRepositories(
    {
      "secret/config.pbtxt": "",
      "secret/1/model.onnx": "",
      "r/m/1/model.onnx": "",
      "r/fine/1/model.onnx": "",
      "r/linked_file/1/model.onnx": "",
    },
    async (root) => {
      await Deno.symlink(`${root}/secret`, `${root}/r/linked`);
      await Deno.symlink(`${root}/r/fine`, `${root}/r/alias`);
      await Deno.symlink(`${root}/secret/config.pbtxt`, `${root}/r/linked_file/config.pbtxt`);
      const repository = openModelRepository(optionsFor([`${root}/r`]), collectWarnings());
      for (const name of ["..", " ..", "../secret", "m/", "a/b", "m; touch /tmp/x"]) {
        await rejects(repository.read(name), /must not contain path traversal characters/, name);
      }
      await rejects(repository.read(""), /Model name cannot be empty/);
      for (const name of ["...", "model..1", "..my_model", "%2e%2e"]) {
        await rejects(repository.read(name), /failed to poll from model repository/, name);
      }
      await rejects(repository.read("linked"), /a link that leads out of the model repository/);
      await rejects(repository.read("linked_file"), /a link that leads out of the directory/);
      equal((await repository.read("alias")).name, "alias");
    },
  ));

Deno.test("ModelRepository tells what is wrong with a repository path", () =>
  withRepositories({ "file": "" }, async (root) => {
    const listOf = (paths: string[]) =>
      openModelRepository(optionsFor(paths), collectWarnings()).list();
    const start = "repository path is not a valid directory: ";
    await rejects(listOf([]), /--model-repository must be specified/);
    await rejects(listOf([`${root}/none`]), new RegExp(`${start}.*does not exist`));
    await rejects(listOf([`${root}/file`]), new RegExp(`${start}.*is not a directory`));
    await rejects(listOf(["s3://bucket/x"]), new RegExp(`${start}.*cloud storage`));
  }));

Deno.test("ModelRepository survives a folder, other encodings and huge files as configuration", () =>
  withRepositories(
    { "r/a/config.pbtxt/x": "", "r/b/1/model.onnx": "", "r/c/1/model.onnx": "" },
    async (root) => {
      await Deno.writeFile(`${root}/r/b/config.pbtxt`, new Uint8Array([35, 10, 35, 0xff, 0xfe]));
      await Deno.writeFile(`${root}/r/c/config.pbtxt`, new Uint8Array(17 * 1024 * 1024).fill(32));
      const repository = openModelRepository(optionsFor([`${root}/r`]), collectWarnings());
      await rejects(repository.read("a"), /a\/config\.pbtxt: Is a directory/);
      await rejects(repository.read("b"), /b\/config\.pbtxt:2:2: text in UTF-8 expected/);
      await rejects(repository.read("c"), /c\/config\.pbtxt: it is larger than 16777216 bytes/);
    },
  ));

Deno.test("ModelRepository runs the checksum agent and knows no other", () =>
  withRepositories({ "r/m/1/model.onnx": "", "r/m/notes.txt": "1" }, async (root) => {
    const repository = openModelRepository(optionsFor([`${root}/r`]), collectWarnings());
    const readWith = async (name: string, key: string, value: string) => {
      await Deno.writeTextFile(
        `${root}/r/m/config.pbtxt`,
        `model_repository_agents { agents { name: "${name}" parameters { key: "${key}" value: "${value}" } } }`,
      );
      return await repository.read("m");
    };
    const sum = "c4ca4238a0b923820dcc509a6f75849b";
    await readWith("checksum", "MD5:notes.txt", sum);
    await rejects(
      readWith("checksum", "MD5:notes.txt", "00"),
      new RegExp(`Mismatched MD5 hash for file notes.txt, expect: 00, got: ${sum}`),
    );
    await rejects(readWith("checksum", "MD5:none", sum), /for read none: No such file/);
    await rejects(readWith("checksum", "MD5:../x", sum), /unexpected parameter 'MD5:\.\.\/x'/);
    await rejects(readWith("other", "a", "b"), /unable to find 'libtritonrepoagent_other\.so'/);
  }));
