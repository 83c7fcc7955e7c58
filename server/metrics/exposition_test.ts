import assert from "node:assert/strict";
import type { VersionSnapshot } from "../core/statistics.ts";
import { formatMetrics } from "./exposition.ts";

const SNAPSHOT: VersionSnapshot = {
  model: "m",
  version: 2,
  tags: { team: 'a "b" \\c\n', "odd key": "x" },
  received: 9,
  success: 5,
  failures: { REJECTED: 1, CANCELED: 0, BACKEND: 2, OTHER: 0 },
  inflight: 1,
  pending: 1,
  inferenceCount: 8,
  executionCount: 4,
  batchRetryCount: 0,
  durationsUs: {
    request: 1234,
    queue: 100,
    compute_input: 10,
    compute_infer: 1000,
    compute_output: 24,
  },
  loadSeconds: 0.25,
};

Deno.test("formatMetrics() prints families with HELP, TYPE and sorted, escaped labels", () => {
  const text = formatMetrics({ versions: [SNAPSHOT] });
  const labels = '_odd_key="x",_team="a \\"b\\" \\\\c\\n",model="m",version="2"';
  assert.ok(text.startsWith(
    "# HELP nv_inference_request_success Number of successful inference requests, all batch sizes\n" +
      "# TYPE nv_inference_request_success counter\n" +
      `nv_inference_request_success{${labels}} 5\n`,
  ));
  const failures = text.split("\n").filter((line) =>
    line.startsWith("nv_inference_request_failure")
  );
  assert.equal(failures.length, 4);
  assert.ok(
    failures.includes(
      'nv_inference_request_failure{_odd_key="x",_team="a \\"b\\" \\\\c\\n",model="m",' +
        'reason="BACKEND",version="2"} 2',
    ),
  );
  assert.ok(text.includes(`nv_model_load_duration_secs{${labels}} 0.25\n`));
  assert.ok(text.includes(`nv_inference_request_duration_us{${labels}} 1234\n`));
});

Deno.test("formatMetrics() prints families that have no child", () => {
  const text = formatMetrics({ versions: [] });
  assert.ok(text.includes("# TYPE nv_inference_pending_request_count gauge\n"));
  assert.ok(!text.includes("{"));
});

Deno.test("formatMetrics() without counter latencies hides latencies only", () => {
  const text = formatMetrics({ versions: [SNAPSHOT] }, { counterLatencies: false, cpu: undefined });
  assert.ok(!text.includes("duration_us"));
  assert.ok(text.includes("nv_inference_request_success{"));
  assert.ok(text.includes("nv_inference_exec_count{"));
});

Deno.test("formatMetrics() prints histogram, summaries and CPU gauges where they are there", () => {
  const summary = { quantiles: [{ quantile: 0.5, value: 7 }], sum: 70, count: 10 };
  const text = formatMetrics({
    versions: [{
      ...SNAPSHOT,
      tags: {},
      firstResponse: { buckets: [{ upperBound: 100, count: 3 }], sum: 9000, count: 4 },
      summaries: {
        request: summary,
        queue: { ...summary, quantiles: [{ quantile: 0.5, value: NaN }] },
        compute_input: summary,
        compute_infer: summary,
        compute_output: summary,
      },
    }],
  }, {
    counterLatencies: true,
    cpu: { utilization: 0.5, memoryTotalBytes: 2048, memoryUsedBytes: undefined },
    gpus: [{
      uuid: "GPU-1",
      utilization: 0.25,
      memoryTotalBytes: 4096,
      memoryUsedBytes: 1024,
      powerUsageWatts: undefined,
      powerLimitWatts: 300,
      energyJoules: 12.5,
    }],
  });
  for (
    const line of [
      'nv_inference_first_response_histogram_ms_bucket{model="m",version="2",le="100"} 3',
      'nv_inference_first_response_histogram_ms_bucket{model="m",version="2",le="+Inf"} 4',
      'nv_inference_first_response_histogram_ms_sum{model="m",version="2"} 9000',
      'nv_inference_request_summary_us{model="m",version="2",quantile="0.5"} 7',
      'nv_inference_request_summary_us_count{model="m",version="2"} 10',
      'nv_inference_queue_summary_us{model="m",version="2",quantile="0.5"} NaN',
      "nv_cpu_utilization 0.5",
      "nv_cpu_memory_total_bytes 2048",
      'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.25',
      'nv_energy_consumption{gpu_uuid="GPU-1"} 12.5',
      "# TYPE nv_energy_consumption counter",
    ]
  ) assert.ok(text.includes(`${line}\n`), line);
  assert.ok(!text.includes("nv_cpu_memory_used_bytes 2"));
  assert.ok(!text.includes("nv_gpu_power_usage{"));
});

Deno.test("formatMetrics() shows what ran on a GPU with its UUID", () => {
  const { success, failures, inferenceCount, executionCount, durationsUs } = SNAPSHOT;
  const child = { success, failures, inferenceCount, executionCount, durationsUs };
  const children = [{ ...child, success: 1 }, { ...child, success: 4, gpuUuid: "GPU-7" }];
  const text = formatMetrics({ versions: [{ ...SNAPSHOT, tags: {}, children }] });
  assert.ok(text.includes('nv_inference_request_success{model="m",version="2"} 1\n'));
  assert.ok(
    text.includes('nv_inference_request_success{gpu_uuid="GPU-7",model="m",version="2"} 4\n'),
  );
  assert.equal(text.match(/^nv_inference_request_failure\{.*GPU-7/gm)?.length, 4);
  assert.equal(text.match(/^nv_inference_pending_request_count\{/gm)?.length, 1);
  assert.equal(text.match(/^nv_model_load_duration_secs\{/gm)?.length, 1);
});
