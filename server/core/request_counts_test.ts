import assert from "node:assert/strict";
import type { InstancePlacement } from "../../backends/backend.ts";
import { ServerError } from "../../proto/status.ts";
import { FakeClock } from "./fake_clock.ts";
import { Job } from "./scheduler/job.ts";
import { VersionStatistics } from "./statistics.ts";

const TIMES = { startMs: 1, inputEndMs: 2, outputStartMs: 4, endMs: 5 };
const GPU: InstancePlacement = { name: "m_0", kind: "KIND_GPU", deviceId: 1 };
const WEBGPU: InstancePlacement = { ...GPU, device: "webgpu" };
const CPU: InstancePlacement = { name: "m_1", kind: "KIND_CPU", deviceId: 1 };

function createStatistics(): VersionStatistics {
  const statistics = new VersionStatistics({
    model: "m",
    version: 1,
    tags: {},
    clock: new FakeClock(),
    statistics: { firstResponseBuckets: [100], summaryQuantiles: [0.5] },
  });
  statistics.addGpu(0, "GPU-0");
  statistics.addGpu(1, "GPU-1");
  return statistics;
}

function createJob(placement: InstancePlacement | undefined): Job {
  const job = new Job({
    id: "",
    correlationId: 0n,
    batchSize: 2,
    inputs: [],
    outputs: [],
    parameters: {},
    signal: undefined,
    priority: 0,
    timeoutUs: 0,
    startMs: 0,
    onDone: () => {},
  });
  job.placement = placement;
  return job;
}

/** Takes a job and runs it to its end. */
function runJob(
  statistics: VersionStatistics,
  placement: InstancePlacement,
  error?: ServerError,
): void {
  const job = createJob(placement);
  statistics.accepted(job);
  statistics.started([job]);
  job.outcome = error === undefined ? { outputs: [] } : { error };
  statistics.executed([job], TIMES);
}

Deno.test("VersionStatistics counts what ran on a GPU apart, and all of it together", () => {
  const statistics = createStatistics();
  runJob(statistics, GPU);
  runJob(statistics, GPU, new ServerError("INTERNAL", "out of memory"));
  runJob(statistics, CPU);
  runJob(statistics, WEBGPU);
  const dropped = createJob(undefined);
  statistics.accepted(dropped);
  statistics.dropped(dropped, "REJECTED", 3);

  const { children = [], ...total } = statistics.snapshot();
  assert.deepEqual(children.map(({ gpuUuid }) => gpuUuid), [undefined, "GPU-0", "GPU-1"]);
  assert.deepEqual(children.map(({ success }) => success), [2, 0, 1]);
  assert.deepEqual(children.map(({ inferenceCount }) => inferenceCount), [4, 0, 2]);
  assert.deepEqual(children.map(({ executionCount }) => executionCount), [2, 0, 2]);
  assert.deepEqual(children.map(({ durationsUs }) => durationsUs.compute_infer), [4000, 0, 2000]);
  assert.deepEqual(children.map(({ failures }) => failures.BACKEND), [0, 0, 1]);
  assert.deepEqual(children.map(({ failures }) => failures.REJECTED), [1, 0, 0]);
  assert.deepEqual(children.map(({ firstResponse }) => firstResponse?.count), [2, 0, 1]);
  assert.deepEqual(children.map(({ summaries }) => summaries?.queue.count), [2, 0, 1]);
  assert.equal(total.success, 3);
  assert.equal(total.received, 5);
  assert.equal(total.inflight, 0);
  assert.equal(total.executionCount, 4);
  assert.equal(total.durationsUs.compute_infer, 6000);
  const message = statistics.toMessage();
  assert.equal(message.inferenceCount, 6n);
  assert.equal(message.inferenceStats?.computeInfer?.ns, 6_000_000n);
  assert.equal(message.inferenceStats?.success?.count, 3n);
});

Deno.test("VersionStatistics counts responses that come after the execution where it ran", () => {
  const statistics = createStatistics();
  const job = createJob(GPU);
  statistics.accepted(job);
  statistics.started([job]);
  job.outcome = { streamed: true };
  statistics.executed([job], TIMES);
  statistics.ended(job, undefined);
  const { children = [], inflight } = statistics.snapshot();
  assert.deepEqual(children.map(({ success }) => success), [0, 0, 1]);
  assert.equal(inflight, 0);
});

Deno.test("VersionStatistics has no children without GPUs", () => {
  const statistics = new VersionStatistics({
    model: "m",
    version: 1,
    tags: {},
    clock: new FakeClock(),
    statistics: {},
  });
  runJob(statistics, GPU);
  assert.equal(statistics.snapshot().children, undefined);
  assert.equal(statistics.snapshot().success, 1);
});
