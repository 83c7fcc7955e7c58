import { deepEqual, equal, match, rejects } from "node:assert/strict";
import type { Backend, DeviceClass, Devices, InstancePlacement } from "../../backends/backend.ts";
import { ServerError } from "../../proto/status.ts";
import type { ConfigSource } from "./config_complete.ts";
import {
  checkGpuLimit,
  completeForAttempt,
  countFallbacks,
  type LoadAttempt,
  loadOnDevices,
} from "./device_loading.ts";
import type { Log } from "./log.ts";

function collectingLog(): { readonly log: Log; readonly lines: string[] } {
  const lines: string[] = [];
  const note = (message: string) => void lines.push(message);
  return { lines, log: { info: note, warning: note, error: note, verbose: () => {} } };
}

function choiceOf(replaceable: DeviceClass | undefined) {
  const machine = { minComputeCapability: 6, gpuIds: [], refusals: new Map() };
  return { machine, notes: [], fallbacks: [], replaceable };
}

Deno.test("loadOnDevices() goes on to the next device, and says why", async () => {
  const { log, lines } = collectingLog();
  const order: DeviceClass[] = ["cuda", "webgpu", "cpu"];
  const attempts: LoadAttempt[] = [];
  const loaded = await loadOnDevices("m", log, (attempt) => {
    attempts.push(attempt);
    const device = order[attempt.failed.size]!;
    attempt.choice = choiceOf(device === "cpu" ? undefined : device);
    if (device === "cpu") return Promise.resolve("loaded");
    return Promise.reject(new ServerError("INTERNAL", `no memory on ${device}`));
  });
  equal(loaded, "loaded");
  equal(countFallbacks(attempts.at(-1)!), 2);
  deepEqual(lines, [
    "model 'm' could not be loaded on CUDA, the next kind is tried: no memory on cuda",
    "model 'm' could not be loaded on WebGPU, the next kind is tried: no memory on webgpu",
  ]);
});

Deno.test("loadOnDevices() does not try again for faults of the model, or without another device", async () => {
  const { log, lines } = collectingLog();
  let tries = 0;
  const failWith = (code: "INVALID_ARG" | "INTERNAL", device: DeviceClass | undefined) =>
    loadOnDevices("m", log, (attempt) => {
      tries++;
      attempt.choice = choiceOf(device);
      return Promise.reject(new ServerError(code, "bad"));
    });
  await rejects(failWith("INVALID_ARG", "cuda"), /bad/);
  await rejects(failWith("INTERNAL", undefined), /bad/);
  equal(tries, 2);
  // A choice that does not change would go on for ever.
  await rejects(failWith("INTERNAL", "cuda"), /bad/);
  equal(tries, 4);
  equal(lines.length, 1);
});

Deno.test("loadOnDevices() goes on when the backend could not describe the model on a device", async () => {
  const { log, lines } = collectingLog();
  const order: (DeviceClass | undefined)[] = ["cuda", undefined];
  const parts = {
    log,
    completeConfig: (
      _source: unknown,
      _backend: unknown,
      attempt?: Parameters<Parameters<typeof completeForAttempt>[2]["completeConfig"]>[2],
    ) => {
      const choice = choiceOf(order[attempt!.failed.size]);
      attempt!.onChosen(choice);
      return attempt!.failed.size > 0
        ? Promise.resolve(choice)
        : Promise.reject(new ServerError("UNAVAILABLE", "out of memory"));
    },
  };
  const [source, backend] = [{}, {}] as [ConfigSource, Backend];
  await loadOnDevices(
    "m",
    log,
    (attempt) => completeForAttempt(source, backend, { ...parts, attempt }),
  );
  deepEqual(lines, [
    "model 'm' could not be loaded on CUDA, the next kind is tried: out of memory",
  ]);
});

Deno.test("checkGpuLimit() refuses an instance on a GPU that is full beyond its limit", async () => {
  let usedBytes = 60;
  const devices: Devices = {
    gpus: () => Promise.resolve({ gpus: [], minComputeCapability: 6 }),
    webGpuAdapters: () => Promise.resolve({ adapters: [], reasons: {} }),
    gpuMemory: (id) => Promise.resolve(id === 2 ? undefined : { totalBytes: 100, usedBytes }),
  };
  const placement: InstancePlacement = { name: "m_0", kind: "KIND_GPU", deviceId: 1 };
  const limits = (fraction: number, gpu = 1) => ({
    devices,
    modelLoadGpuLimits: new Map([[gpu, fraction]]),
  });
  await checkGpuLimit("m", placement, limits(0.6));
  await checkGpuLimit("m", placement, limits(0.1, 0));
  await checkGpuLimit("m", { ...placement, kind: "KIND_CPU" }, limits(0.1));
  await checkGpuLimit("m", { ...placement, device: "webgpu" }, limits(0.1));
  await checkGpuLimit("m", { ...placement, deviceId: 2 }, limits(0, 2));
  await rejects(checkGpuLimit("m", placement, limits(0.5)), (error: ServerError) => {
    equal(error.code, "UNAVAILABLE");
    match(
      error.message,
      /^can not create model 'm': memory limit set for KIND_GPU 1 has exceeded, model loading is rejected \(60% of its memory is in use, --model-load-gpu-limit=1:0\.5 allows 50%\)$/,
    );
    return true;
  });
  usedBytes = 40;
  await checkGpuLimit("m", placement, limits(0.5));
});
