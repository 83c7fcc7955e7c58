import { deepEqual, equal, match, throws } from "node:assert/strict";
import {
  type Backend,
  CPU_OFFER,
  type DeviceClass,
  deviceOfGroup,
  type Devices,
  type KindOffer,
} from "../../backends/backend.ts";
import { ModelInstanceGroup_Kind } from "../../proto/gen/model_config_pb.ts";
import { parseModelConfig } from "../../proto/model_config.ts";
import { chooseKinds, mayFallBack } from "./instance_kinds.ts";
import { DEFAULT_SERVER_OPTIONS } from "./options.ts";

const CUDA: KindOffer = { kind: "KIND_GPU", device: "cuda", deviceIds: [0, 1] };
const WEBGPU: KindOffer = { kind: "KIND_GPU", device: "webgpu", deviceIds: [0] };
const NO_CUDA: KindOffer = { ...CUDA, deviceIds: [], refusal: "no driver" };
const NO_WEBGPU: KindOffer = { ...WEBGPU, deviceIds: [], refusal: "no adapter" };

function backendWith(offers: readonly KindOffer[] | undefined): Backend {
  return {
    name: "b",
    preference: { kind: "KIND_CPU", count: 1 },
    autoComplete: () => Promise.resolve(),
    openModel: () => Promise.reject(new Error("Not asked for")),
    [Symbol.asyncDispose]: () => Promise.resolve(),
    ...(offers === undefined ? {} : { kinds: () => Promise.resolve(offers) }),
  };
}

function machine(): Devices & { looks: number } {
  return {
    looks: 0,
    gpus() {
      this.looks++;
      return Promise.resolve({ gpus: [], minComputeCapability: 7 });
    },
    webGpuAdapters: () => Promise.resolve({ adapters: [], reasons: {} }),
    gpuMemory: () => Promise.resolve(undefined),
  };
}

async function choose(text: string, offers: readonly KindOffer[] | undefined, more: {
  readonly fallback?: boolean;
  readonly failed?: ReadonlyMap<DeviceClass, string>;
} = {}) {
  const { config } = parseModelConfig(`name: "m" ${text}`, "m/config.pbtxt");
  const source = { name: "m", version: 1, modelDirectory: "/m", versionDirectory: "/m/1", config };
  const settings = { devices: machine(), mayFallBack: more.fallback ?? false, failed: more.failed };
  const choice = await chooseKinds(source, backendWith(offers), settings);
  const groups = config.instanceGroup.map((group) => [
    ModelInstanceGroup_Kind[group.kind],
    deviceOfGroup(config, group),
    ...group.gpus,
  ]);
  const why = Object.fromEntries(
    Object.entries(config.parameters).map(([key, { stringValue }]) => [key, stringValue]),
  );
  return { ...choice, groups, why, looks: settings.devices.looks };
}

Deno.test("chooseKinds() takes the first usable of CUDA, WebGPU and CPU for KIND_AUTO and no group", async () => {
  for (const text of ["", "instance_group { }", "instance_group { kind: KIND_AUTO }"]) {
    deepEqual((await choose(text, [CUDA, WEBGPU, CPU_OFFER])).groups, [["GPU", "cuda", 0, 1]]);
    deepEqual((await choose(text, [NO_CUDA, WEBGPU, CPU_OFFER])).groups, [["GPU", "webgpu", 0]]);
    deepEqual((await choose(text, [NO_CUDA, NO_WEBGPU, CPU_OFFER])).groups, [["CPU", "cpu"]]);
    deepEqual((await choose(text, undefined)).groups, [["CPU", "cpu"]]);
  }
});

Deno.test("chooseKinds() tells which device and why, in a note and where it is not plain in a parameter", async () => {
  const onWebGpu = await choose("instance_group { }", [NO_CUDA, WEBGPU, CPU_OFFER]);
  deepEqual(onWebGpu.notes, [
    "instance group m_0 of model m (KIND_AUTO) runs on WebGPU 0: CUDA: no driver",
  ]);
  deepEqual(onWebGpu.why, { "nereid.device.m_0": "webgpu: KIND_AUTO; CUDA: no driver" });
  const onCpu = await choose("", [NO_CUDA, CPU_OFFER]);
  deepEqual(onCpu.notes, [
    "instance group m of model m (KIND_AUTO) runs on CPU: CUDA: no driver",
  ]);
  deepEqual(onCpu.why, {});
  const text = `parameters { key: "nereid.device.x" value { string_value: "cuda" } }`;
  deepEqual((await choose(text, [CPU_OFFER])).why, {});
  deepEqual((await choose("", undefined)).notes, [], "a backend for CPUs has nothing to choose");
});

Deno.test("chooseKinds() gives KIND_GPU all devices, or those that it names", async () => {
  const groups =
    `instance_group [ { kind: KIND_GPU }, { kind: KIND_GPU gpus: 1 }, { kind: KIND_CPU } ]`;
  const chosen = await choose(groups, [CUDA, CPU_OFFER]);
  deepEqual(chosen.groups, [["GPU", "cuda", 0, 1], ["GPU", "cuda", 1], ["CPU", "cpu"]]);
  equal(chosen.machine.refusals.size, 0);
  equal(chosen.replaceable, undefined);
  const webGpu = await choose("instance_group { kind: KIND_GPU }", [NO_CUDA, WEBGPU, CPU_OFFER]);
  deepEqual(webGpu.groups, [["GPU", "webgpu", 0]]);
  deepEqual(webGpu.why, { "nereid.device.m_0": "webgpu: CUDA: no driver" });
});

Deno.test("chooseKinds() refuses KIND_GPU without one, with what was tried and what would help", async () => {
  const strict = "instance_group { kind: KIND_GPU }";
  const { machine: found, groups } = await choose(strict, [NO_CUDA, NO_WEBGPU, CPU_OFFER]);
  deepEqual([...found.refusals], [[
    0,
    "tried CUDA: no driver; WebGPU: no adapter; KIND_CPU or KIND_AUTO is expected, or " +
    "--backend-config=b,fallback=true",
  ]]);
  deepEqual(found.gpuIds, []);
  equal(found.minComputeCapability, 7);
  deepEqual(groups, [["GPU", "cuda"]]);
  match(
    (await choose(strict, undefined)).machine.refusals.get(0)!,
    /^tried CUDA: backend 'b' runs on CPUs only; KIND_CPU/,
  );
  const missing = await choose("instance_group { kind: KIND_GPU gpus: 5 }", [CUDA, CPU_OFFER]);
  match(missing.machine.refusals.get(0)!, /^tried CUDA: has the devices 0, 1; /);
  deepEqual(missing.machine.gpuIds, [0, 1]);
  const needsGpu = await choose("", [NO_CUDA]);
  match(needsGpu.machine.refusals.get(0)!, /^tried CUDA: no driver; backend 'b' needs a GPU$/);
});

Deno.test("chooseKinds() lets KIND_GPU fall to the next kind where that is allowed", async () => {
  const strict = "instance_group { kind: KIND_GPU gpus: 3 }";
  const fallen = await choose(strict, [NO_CUDA, CPU_OFFER], { fallback: true });
  deepEqual(fallen.groups, [["CPU", "cpu"]]);
  deepEqual(fallen.fallbacks, [
    "instance group m_0 of model m has kind KIND_GPU and falls back to CPU: CUDA: no driver",
  ]);
  deepEqual(fallen.why, { "nereid.device.m_0": "cpu: KIND_GPU fell back; CUDA: no driver" });
  equal(fallen.machine.refusals.size, 0);
});

Deno.test("chooseKinds() passes over devices on which loading failed", async () => {
  const failed = new Map<DeviceClass, string>([["cuda", "out of memory"]]);
  const first = await choose("", [CUDA, WEBGPU, CPU_OFFER]);
  equal(first.replaceable, "cuda");
  const second = await choose("", [CUDA, WEBGPU, CPU_OFFER], { failed });
  deepEqual(second.groups, [["GPU", "webgpu", 0]]);
  equal(second.replaceable, "webgpu");
  match(second.notes[0]!, /CUDA: loading failed: out of memory$/);
  failed.set("webgpu", "operator");
  const last = await choose("", [CUDA, WEBGPU, CPU_OFFER], { failed });
  equal(last.replaceable, undefined);
  deepEqual(last.groups, [["CPU", "cpu"]]);
  deepEqual(Object.values(last.why), [
    "cpu: KIND_AUTO; CUDA: loading failed: out of memory; WebGPU: loading failed: operator",
  ]);
});

Deno.test("chooseKinds() takes secondary devices, and tells when the backend knows none", async () => {
  const group = "instance_group { kind: KIND_CPU secondary_devices { device_id: 1 } }";
  const { notes, groups } = await choose(group, [CPU_OFFER]);
  deepEqual(groups, [["CPU", "cpu"]]);
  deepEqual(notes, [
    "instance group m_0 of model m names secondary_devices, which backend 'b' does not use",
  ]);
  const { config } = parseModelConfig(`name: "m" ${group}`, "m/config.pbtxt");
  const source = { name: "m", version: 1, modelDirectory: "/m", versionDirectory: "/m/1", config };
  const knows = { ...backendWith([CPU_OFFER]), usesSecondaryDevices: true };
  deepEqual((await chooseKinds(source, knows, { mayFallBack: false })).notes, []);
});

Deno.test("chooseKinds() looks for no device when every group says that it wants none", async () => {
  const gpus: KindOffer[] = [CUDA, CPU_OFFER];
  equal((await choose("instance_group { kind: KIND_CPU }", gpus)).looks, 0);
  deepEqual((await choose("instance_group { kind: KIND_MODEL }", gpus)).groups, [["MODEL", "cpu"]]);
});

Deno.test("mayFallBack() reads a backend's own word before that of all", () => {
  const options = (entries: readonly (readonly [string, string])[]) => ({
    ...DEFAULT_SERVER_OPTIONS,
    backendConfig: new Map(entries.map(([name, value]) => [name, new Map([["fallback", value]])])),
  });
  equal(mayFallBack(DEFAULT_SERVER_OPTIONS, "b"), false);
  equal(mayFallBack(options([["b", "true"]]), "b"), true);
  equal(mayFallBack(options([["", "true"], ["b", "0"]]), "b"), false);
  equal(mayFallBack(options([["", "on"]]), "b"), true);
  throws(() => mayFallBack(options([["b", "maybe"]]), "b"), /failed to convert 'maybe' to boolean/);
});
