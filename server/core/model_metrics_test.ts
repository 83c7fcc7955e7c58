import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { modelStatisticsOptions } from "./model_metrics.ts";

function setUp(family: string) {
  const warnings: string[] = [];
  const log = {
    info() {},
    warning: (message: string) => void warnings.push(message),
    error() {},
    verbose() {},
  };
  const config = create(ModelConfigSchema, {
    modelMetrics: {
      metricControl: [{
        metricIdentifier: { family },
        metricOptions: { case: "histogramOptions", value: { buckets: [-1, 0, 2.5, 2.5] } },
      }],
    },
  });
  return { config, log, warnings };
}

Deno.test("modelStatisticsOptions() takes the buckets of the model for its histogram", () => {
  const { config, log, warnings } = setUp("nv_inference_first_response_histogram_ms");
  const options = { firstResponseBuckets: [100, 500], summaryQuantiles: [0.5] };
  assert.deepEqual(modelStatisticsOptions(config, options, log), {
    firstResponseBuckets: [-1, 0, 2.5],
    summaryQuantiles: [0.5],
  });
  assert.deepEqual(modelStatisticsOptions(config, {}, log), {}, "no histogram is asked for");
  assert.equal(modelStatisticsOptions(create(ModelConfigSchema), options, log), options);
  assert.deepEqual(warnings, []);
});

Deno.test("modelStatisticsOptions() warns of a family that cannot be changed", () => {
  const { config, log, warnings } = setUp("nv_inference_count");
  const options = { firstResponseBuckets: [100] };
  assert.equal(modelStatisticsOptions(config, options, log), options);
  assert.match(
    warnings[0]!,
    /^Metric family 'nv_inference_count' in 'metric_identifier' is not a customizable metric in Triton core\./,
  );
});
