import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema, ModelInstanceGroupSchema } from "../../proto/gen/model_config_pb.ts";
import { engineSignature, engineTensor, rowsEngine, rowsProfile } from "./engine_fixture.ts";
import { chooseProfiles, findGroup, maxRows, profileDistance, profileMisfit } from "./profile.ts";

const group = (profile: readonly string[]) =>
  create(ModelInstanceGroupSchema, { name: "g", profile: [...profile] });

Deno.test("findGroup() finds the group of an instance by its name", () => {
  const config = create(ModelConfigSchema, { instanceGroup: [{ name: "g_1" }, { name: "g_10" }] });
  const placement = { name: "g_10_3", kind: "KIND_GPU", deviceId: 0 } as const;
  assert.equal(findGroup(config, placement), config.instanceGroup[1]);
  assert.equal(findGroup(config, { ...placement, name: "other_0" }), undefined);
});

Deno.test("chooseProfiles() takes those of the group once each, else the first", () => {
  const engine = engineSignature([], 3);
  assert.deepEqual(chooseProfiles(undefined, engine, "m"), [0]);
  assert.deepEqual(chooseProfiles(group([]), engine, "m"), [0]);
  assert.deepEqual(chooseProfiles(group(["2", "0", "2"]), engine, "m"), [2, 0]);
  for (const text of ["3", "-1", "one", ""]) {
    assert.throws(() => chooseProfiles(group([text]), engine, "m"), {
      code: "INVALID_ARG",
      message: `instance group g of model m specifies profile '${text}', the plan has 3 ` +
        `optimization profiles: expected a number from 0 to 2`,
    });
  }
});

Deno.test("profileMisfit() names the first dimension that does not fit", () => {
  const shapes = rowsProfile(2, 4);
  assert.equal(profileMisfit([3, 16], shapes), undefined);
  assert.match(profileMisfit([5, 16], shapes)!, /dimension 0 to be between 2 and 4 but received 5/);
  assert.match(profileMisfit([1, 16], shapes)!, /received 1$/);
  assert.match(profileMisfit([3, 15], shapes)!, /dimension 1 to be between 16 and 16/);
  assert.match(profileMisfit([3], shapes)!, /expected 2 dimensions but received 1/);
});

Deno.test("profileDistance() is smallest at the profile's best shape", () => {
  assert.deepEqual([[4, 16], [2, 16]].map((each) => profileDistance(each, rowsProfile(1, 4))), [
    0,
    2,
  ]);
});

Deno.test("maxRows() is what the profiles take, and 0 for engines that do not batch", () => {
  assert.equal(maxRows(rowsEngine(8), [0]), 8);
  const two = engineSignature([
    engineTensor({ name: "A", profiles: [rowsProfile(1, 4), rowsProfile(1, 32)] }),
    engineTensor({ name: "B", profiles: [rowsProfile(1, 8), rowsProfile(1, 16)] }),
  ], 2);
  assert.equal(maxRows(two, [0]), 4);
  assert.equal(maxRows(two, [0, 1]), 16);
  const fixed = engineSignature([
    engineTensor({ name: "A", profiles: [rowsProfile(1, 4)] }),
    engineTensor({ name: "B", isInput: false, dims: [2, -1] }),
  ]);
  assert.equal(maxRows(fixed, [0]), 0);
});
