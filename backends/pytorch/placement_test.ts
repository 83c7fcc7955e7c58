import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema, ModelInstanceGroup_Kind } from "../../proto/gen/model_config_pb.ts";
import { checkPackagePlace, firstPlace, torchPlace } from "./placement.ts";

const library = (count: number | undefined) => ({
  version: "2.13.0",
  cudaDeviceCount: () => count,
});
const place = (kind: "KIND_CPU" | "KIND_GPU" | "KIND_MODEL", deviceId = 0, count?: number) =>
  torchPlace({ name: "m_0", kind, deviceId }, {
    modelName: "m",
    format: "script",
    runtime: library(count),
  });

Deno.test("torchPlace() follows the kind of the instance", () => {
  assert.equal(place("KIND_CPU"), "cpu");
  assert.equal(place("KIND_MODEL"), "saved");
  assert.equal(place("KIND_GPU", 1, 2), 1);
});

Deno.test("torchPlace() refuses devices that libtorch has not", () => {
  assert.throws(
    () => place("KIND_GPU"),
    /instance 'm_0' of model 'm' cannot run on GPU 0: libtorch 2\.13\.0 is built without CUDA/,
  );
  assert.throws(() => place("KIND_GPU", 1, 1), /on GPU 1: libtorch 2\.13\.0 sees 1 CUDA device$/);
});

Deno.test("firstPlace() is that of the first group", () => {
  const { GPU, MODEL } = ModelInstanceGroup_Kind;
  const first = (kind: ModelInstanceGroup_Kind, gpus: number[] = []) =>
    firstPlace(
      create(ModelConfigSchema, { name: "m", instanceGroup: [{ kind, gpus }] }),
      library(2),
    );
  assert.equal(first(GPU, [1]), 1);
  assert.equal(first(MODEL), "saved");
  assert.equal(firstPlace(create(ModelConfigSchema, { name: "m" }), library(2)), "cpu");
});

Deno.test("checkPackagePlace() wants the device that a package was compiled for", () => {
  checkPackagePlace("m", "cpu", "cpu");
  checkPackagePlace("m", "cuda", 0);
  checkPackagePlace("m", "", "cpu");
  assert.throws(
    () => checkPackagePlace("m", "cuda", "cpu"),
    /compiled for 'cuda', its instances are on 'cpu': set instance_group \{ kind: KIND_GPU \}/,
  );
});
