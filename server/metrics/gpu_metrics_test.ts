import { deepEqual, equal } from "node:assert/strict";
import { GPU_FAMILIES, type GpuReading, GpuSampler } from "./gpu_metrics.ts";

function reading(over: Partial<GpuReading> = {}): GpuReading {
  return {
    uuid: "GPU-1",
    utilization: 0.5,
    memoryTotalBytes: 100,
    memoryUsedBytes: 40,
    powerUsageWatts: 90,
    powerLimitWatts: 300,
    energyJoules: 1000,
    ...over,
  };
}

/** A sampler in virtual time over a list of looks, the last of which repeats. */
function samplerOver(looks: readonly (readonly GpuReading[])[]) {
  const state = { nowMs: 0, reads: 0, timers: new Set<() => void>() };
  const sampler = new GpuSampler({
    intervalMs: 2000,
    now: () => state.nowMs,
    setTimer: (_delayMs, callback) => {
      state.timers.add(callback);
      return { cancel: () => void state.timers.delete(callback) };
    },
    read: () => Promise.resolve(looks[Math.min(state.reads++, looks.length - 1)]!),
  });
  return { sampler, state };
}

Deno.test("GpuSampler reads once per interval and counts energy from its first look", async () => {
  const { sampler, state } = samplerOver([
    [reading()],
    [reading({ energyJoules: 1250, utilization: 1 })],
  ]);
  deepEqual((await sampler.sample()).map((gpu) => [gpu.utilization, gpu.energyJoules]), [[0.5, 0]]);
  state.nowMs = 1999;
  equal((await sampler.sample())[0]!.utilization, 0.5);
  state.nowMs = 2000;
  deepEqual((await sampler.sample()).map((gpu) => [gpu.utilization, gpu.energyJoules]), [[1, 250]]);
  equal(state.reads, 2);
  equal(state.timers.size, 0);
});

Deno.test("GpuSampler leaves a reading alone that failed three times in a row, for that GPU only", async () => {
  const bad = [reading({ powerUsageWatts: undefined }), reading({ uuid: "GPU-2" })];
  const good = [reading(), reading({ uuid: "GPU-2" })];
  const { sampler, state } = samplerOver([bad, bad, good, bad, bad, bad, good]);
  const seen: unknown[] = [];
  for (let look = 0; look < 7; look++) {
    seen.push((await sampler.sample()).map((gpu) => gpu.powerUsageWatts));
    state.nowMs += 2000;
  }
  deepEqual(seen.map((watts) => (watts as unknown[])[0]), [
    undefined,
    undefined,
    90,
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
  deepEqual(seen.map((watts) => (watts as unknown[])[1]), Array(7).fill(90));
});

Deno.test("GpuSampler answers with the samples from before while the driver hangs", async () => {
  const timers: (() => void)[] = [];
  const looks = [Promise.resolve([reading()]), new Promise<GpuReading[]>(() => {})];
  let [nowMs, reads] = [0, 0];
  const sampler = new GpuSampler({
    intervalMs: 10,
    now: () => nowMs,
    setTimer: (_delayMs, callback) => {
      timers.push(callback);
      return { cancel: () => {} };
    },
    read: () => looks[reads++]!,
  });
  equal((await sampler.sample()).length, 1);
  nowMs = 50;
  const waiting = [sampler.sample(), sampler.sample()];
  timers.splice(0).forEach((fire) => fire());
  deepEqual((await Promise.all(waiting)).map((gpus) => gpus.length), [1, 1]);
  equal(reads, 2);
});

Deno.test("GPU_FAMILIES have a sample per GPU and reading, none for what is not known", () => {
  const gpus = [reading(), reading({ uuid: "GPU-2", utilization: undefined })];
  const counts = GPU_FAMILIES.map(({ name, type, samples }) => [name, type, samples(gpus).length]);
  deepEqual(counts, [
    ["nv_gpu_utilization", "gauge", 1],
    ["nv_gpu_memory_total_bytes", "gauge", 2],
    ["nv_gpu_memory_used_bytes", "gauge", 2],
    ["nv_gpu_power_usage", "gauge", 2],
    ["nv_gpu_power_limit", "gauge", 2],
    ["nv_energy_consumption", "counter", 2],
  ]);
  deepEqual(GPU_FAMILIES[0]!.samples(gpus), [{ labels: { gpu_uuid: "GPU-1" }, value: 0.5 }]);
});
