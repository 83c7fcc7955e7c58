import assert from "node:assert/strict";
import { CpuSampler } from "./cpu_metrics.ts";

const MEMINFO = "MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n";

Deno.test("CpuSampler.sample() gives the utilization since the sample before", async () => {
  let nowMs = 0;
  let stat = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n";
  const sampler = new CpuSampler({
    intervalMs: 2000,
    now: () => nowMs,
    readText: (path) => Promise.resolve(path === "/proc/stat" ? stat : MEMINFO),
  });
  assert.deepEqual(await sampler.sample(), {
    utilization: 0.2,
    memoryTotalBytes: 1_024_000,
    memoryUsedBytes: 614_400,
  });
  stat = "cpu  160 0 140 800 100 0 0 0 0 0\n";
  nowMs = 1999;
  assert.equal((await sampler.sample()).utilization, 0.2, "within the interval");
  nowMs = 2000;
  assert.equal((await sampler.sample()).utilization, 0.5);
});

Deno.test("CpuSampler.sample() leaves a source alone that failed three times", async () => {
  let nowMs = 0;
  let reads = 0;
  const sampler = new CpuSampler({
    intervalMs: 1,
    now: () => nowMs++,
    readText: (path) => {
      if (path === "/proc/meminfo") return Promise.resolve(MEMINFO);
      reads++;
      return Promise.reject(new Error("No such file"));
    },
  });
  for (let round = 0; round < 5; round++) {
    const sample = await sampler.sample();
    assert.equal(sample.utilization, undefined);
    assert.equal(sample.memoryTotalBytes, 1_024_000);
  }
  assert.equal(reads, 3);
});
