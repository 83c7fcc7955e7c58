import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { readModelSettings } from "./model_settings.ts";

async function read(
  parameters: Record<string, string> = {},
  settings: Record<string, string> = {},
  defaultModelFilename = "",
) {
  const folder = await Deno.makeTempDir({ prefix: "nereid_" });
  try {
    await Deno.mkdir(`${folder}/1`);
    await Deno.writeTextFile(`${folder}/1/model.ts`, "");
    const config = create(ModelConfigSchema, {
      name: "m",
      defaultModelFilename,
      parameters: Object.fromEntries(
        Object.entries(parameters).map(([key, stringValue]) => [key, { stringValue }]),
      ),
    });
    const versionDirectory = `${folder}/1`;
    const source = { name: "m", version: 1, modelDirectory: folder, versionDirectory, config };
    const found = await readModelSettings(source, new Map(Object.entries(settings)));
    return { folder, ...found };
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const NOTHING = { write: false, net: false, env: false, run: false, ffi: false, sys: false };

Deno.test("a model may read its own folder and nothing else", async () => {
  const { folder, permissions, file, restart } = await read();
  assert.deepEqual(permissions, { ...NOTHING, read: [folder], import: false });
  assert.equal(file, `file://${folder}/1/model.ts`);
  assert.equal(restart, "on-failure");
});

Deno.test("a model may do what its parameters declare", async () => {
  const { folder, permissions } = await read({
    allow_read: "$$TRITON_MODEL_DIRECTORY/../x, /etc/hostname",
    allow_net: "true",
    allow_env: "HOME,",
    allow_run: "false",
  });
  assert.deepEqual(permissions, {
    ...NOTHING,
    read: [folder, `${folder}/../x`, "/etc/hostname"],
    net: true,
    env: ["HOME"],
    import: false,
  });
});

Deno.test("the server decides what models may declare", async () => {
  assert.equal((await read({}, { permissions: "inherit" })).permissions, "inherit");
  await assert.rejects(read({ allow_net: "true" }, { permissions: "none" }), /'allow_net'.*none/);
  await assert.rejects(read({}, { permissions: "all" }), /must be declared or none or inherit/);
});

Deno.test("limits come from the parameters, then from the settings", async () => {
  const settings = { "execute-timeout-seconds": "3", "memory-limit-mib": "10", restart: "never" };
  const given = await read({}, settings);
  assert.deepEqual([given.executeTimeoutMs, given.memoryLimitBytes], [3000, 10 * 2 ** 20]);
  assert.equal(given.restart, "never");
  const own = await read({ execute_timeout_seconds: "0.5", max_streams: "2" }, settings);
  assert.deepEqual([own.executeTimeoutMs, own.maxStreams], [500, 2]);
  await assert.rejects(read({ max_streams: "x" }), /'max_streams'/);
  await assert.rejects(read({}, { "memory-limit-mib": "" }), /memory-limit-mib must be a number/);
});

Deno.test("a model file that is missing, or is no script, is refused", async () => {
  await assert.rejects(read({}, {}, "other.ts"), { code: "NOT_FOUND", message: /other\.ts'/ });
  await assert.rejects(read({}, {}, "model.py"), { code: "INVALID_ARG", message: /end in \.ts/ });
});
