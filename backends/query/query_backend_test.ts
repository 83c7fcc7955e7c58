import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { DataType, ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { FakeClock } from "../../server/core/fake_clock.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { createFixtureInstance } from "../sequence_fixture.ts";
import { createQueryBackend } from "./query_backend.ts";

async function run(parameters: Record<string, string>, outputNames = ["OUTPUT0", "OUTPUT1"]) {
  const config = create(ModelConfigSchema, {
    name: "m",
    output: outputNames.map((name) => ({ name, dataType: DataType.TYPE_UINT8, dims: [-1n] })),
    parameters: Object.fromEntries(
      Object.entries(parameters).map(([key, stringValue]) => [key, { stringValue }]),
    ),
  });
  await using instance = await createFixtureInstance(createQueryBackend, config, new FakeClock());
  const request = executeRequest({ inputs: [], outputs: ["OUTPUT0", "OUTPUT1"] });
  const { outcomes: [outcome] } = await instance.execute([request]);
  if ("error" in outcome!) throw outcome.error;
  if (!("outputs" in outcome!)) throw new TypeError("no outputs");
  return outcome.outputs.map(({ name, shape, data }) => [name, shape, data.length]);
}

Deno.test("query answers with zeros of the size that is asked for", async () => {
  assert.deepEqual(await run({}), [["OUTPUT0", [2], 2], ["OUTPUT1", [2], 2]]);
  assert.deepEqual(await run({ TEST_BYTE_SIZE: "16" }), [
    ["OUTPUT0", [16], 16],
    ["OUTPUT1", [16], 16],
  ]);
  assert.deepEqual(await run({ TEST_BYTE_SIZE: "16", TEST_ANONYMOUS: "" }), [
    ["OUTPUT0", [8], 8],
    ["OUTPUT1", [8], 8],
  ]);
});

Deno.test("query fails with where the outputs would lie", async () => {
  await assert.rejects(run({ TEST_FAIL_WITH_QUERY_RESULT: "1" }), {
    code: "UNKNOWN",
    message: "OUTPUT0 CPU 0; OUTPUT1 CPU 0; ",
  });
  await assert.rejects(run({ TEST_FAIL_WITH_QUERY_RESULT: "1", TEST_ANONYMOUS: "1" }), {
    message: "NULL CPU 0; ",
  });
});

Deno.test("query refuses sizes and outputs that it cannot make", async () => {
  await assert.rejects(run({ TEST_BYTE_SIZE: "many" }), /TEST_BYTE_SIZE .* got 'many'/);
  await assert.rejects(run({}, ["OUTPUT0"]), /got no OUTPUT1/);
});
