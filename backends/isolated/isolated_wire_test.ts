import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { configError, configFaults } from "../../proto/model_config.ts";
import { ServerError } from "../../proto/status.ts";
import { readConfig, readError, wireConfig, wireError } from "./isolated_wire.ts";
import { readOffers, readPreference } from "./offer_wire.ts";

const travel = (value: unknown): unknown => JSON.parse(JSON.stringify(value));

Deno.test("errors pass with code and text", () => {
  const error = readError(travel(wireError(new ServerError("NOT_FOUND", "no such file"))));
  assert.deepEqual([error.code, error.message], ["NOT_FOUND", "no such file"]);
  assert.equal(readError(travel(wireError(new TypeError("oops")))).code, "INTERNAL");
  assert.throws(() => readError(["toString", "x"]), /code of an error/);
  assert.throws(() => readError(["INTERNAL", 1]), /text of an error/);
  assert.throws(() => readError("INTERNAL"), /Expected an error/);
  assert.throws(() => readError(["INTERNAL", "x", [{ path: 1 }]]), /faults of a configuration/);
});

Deno.test("faults of a configuration keep their paths", () => {
  const issues = [{ path: "input[0].dims", message: "wrong", hint: "mend it" }];
  const error = readError(travel(wireError(configError(issues))));
  assert.deepEqual(configFaults(error).issues, issues);
});

Deno.test("configurations pass whole", () => {
  const config = create(ModelConfigSchema, {
    name: "m",
    maxBatchSize: 4,
    schedulingChoice: { case: "dynamicBatching", value: {} },
  });
  assert.deepEqual(readConfig(wireConfig(config).parts[0]!), config);
  assert.throws(() => readConfig(Uint8Array.of(255, 255)), RangeError);
});

Deno.test("what a process offers is checked", () => {
  const offer = { kind: "KIND_CPU", device: "cpu", deviceIds: [0] };
  assert.deepEqual(readOffers([offer]), [offer]);
  for (
    const wrong of [
      offer,
      [{ ...offer, kind: "KIND_AUTO" }],
      [{ ...offer, device: "constructor" }],
      [{ ...offer, deviceIds: [-1] }],
      [{ ...offer, refusal: 1 }],
      [null],
    ]
  ) assert.throws(() => readOffers(wrong), RangeError);
  assert.deepEqual(readPreference({ kind: "KIND_CPU", count: 2 }), { kind: "KIND_CPU", count: 2 });
  for (
    const wrong of [null, { kind: "KIND_CPU" }, { kind: "x", count: 1 }, {
      kind: "KIND_CPU",
      count: 1e9,
    }]
  ) {
    assert.throws(() => readPreference(wrong), RangeError);
  }
});
