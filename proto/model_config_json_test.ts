import { deepEqual, equal } from "node:assert/strict";
import {
  formatModelConfigJson,
  normalizeInstanceGroups,
  normalizeModelConfig,
  parseModelConfig,
  parseModelConfigJson,
} from "./model_config.ts";

Deno.test("formatModelConfigJson() prints the example of the specification", () => {
  const { config } = parseModelConfig(
    `name: "m" platform: "onnxruntime_onnx" backend: "onnxruntime" max_batch_size: 4
     input { name: "X" data_type: TYPE_FP32 dims: 16 } output { name: "Y" data_type: TYPE_FP32 dims: 16 }
     dynamic_batching { } default_model_filename: "model.onnx"`,
    "c",
  );
  normalizeModelConfig(config);
  normalizeInstanceGroups(config, { kind: "KIND_CPU", count: 2 });
  equal(
    formatModelConfigJson(config),
    `{"name":"m","platform":"onnxruntime_onnx","backend":"onnxruntime","runtime":"",` +
      `"version_policy":{"latest":{"num_versions":1}},"max_batch_size":4,` +
      `"input":[{"name":"X","data_type":"TYPE_FP32","format":"FORMAT_NONE","dims":[16],` +
      `"is_shape_tensor":false,"allow_ragged_batch":false,"optional":false,` +
      `"is_non_linear_format_io":false}],` +
      `"output":[{"name":"Y","data_type":"TYPE_FP32","dims":[16],"label_filename":"",` +
      `"is_shape_tensor":false,"is_non_linear_format_io":false}],` +
      `"batch_input":[],"batch_output":[],` +
      `"optimization":{"priority":"PRIORITY_DEFAULT","input_pinned_memory":{"enable":true},` +
      `"output_pinned_memory":{"enable":true},"gather_kernel_buffer_threshold":0,` +
      `"eager_batching":false},` +
      `"dynamic_batching":{"preferred_batch_size":[4],"max_queue_delay_microseconds":0,` +
      `"preserve_ordering":false,"priority_levels":0,"default_priority_level":0,` +
      `"priority_queue_policy":{}},` +
      `"instance_group":[{"name":"m","kind":"KIND_CPU","count":2,"gpus":[],"secondary_devices":[],` +
      `"profile":[],"passive":false,"host_policy":""}],` +
      `"default_model_filename":"model.onnx","cc_model_filenames":{},"metric_tags":{},` +
      `"parameters":{},"model_warmup":[]}`,
  );
});

Deno.test("formatModelConfigJson() prints 64-bit numbers, floats and oneof members like the reference", () => {
  const { config, issues } = parseModelConfig(
    `instance_group { secondary_devices { device_id: 9007199254740993 } }
     optimization { cuda { graph_spec { input { key: "a" value { dim: 5 } } } } }
     sequence_batching {
       direct { minimum_slot_utilization: 0.1 max_queue_delay_microseconds: 18446744073709551615 }
       state { dims: -1 initial_state { dims: 3 zero_data: false name: "n" } }
       control_input { control { fp32_false_true: [ nan, -inf ] } }
     }
     model_metrics { metric_control { histogram_options { buckets: [ 1, 100.5 ] } } }`,
    "c",
  );
  equal(issues.length, 0);
  const text = formatModelConfigJson(config);
  for (
    const part of [
      `"secondary_devices":[{"kind":"KIND_NVDLA","device_id":"9007199254740993"}]`,
      `{"a":{"dim":["5"]}}`,
      `"direct":{"max_queue_delay_microseconds":18446744073709551615,"minimum_slot_utilization":0.1}`,
      `"dims":[-1],"initial_state":[{"data_type":"TYPE_INVALID","dims":["3"],"name":"n","zero_data":false}]`,
      `"fp32_false_true":["NaN","-Infinity"]`,
      `"histogram_options":{"buckets":[1,100.5]}`,
    ]
  ) {
    equal(text.includes(part), true, `${part} is not in ${text}`);
  }
});

Deno.test("parseModelConfigJson() accepts both spellings, any case of enums and numbers as text", () => {
  const { config, issues } = parseModelConfigJson(JSON.stringify({
    maxBatchSize: "6",
    input: [{ name: "A", data_type: "type_fp32", dims: ["4", -1] }, { data_type: 11 }],
    dynamic_batching: { priorityQueuePolicy: { "2": { timeout_action: "delay" } } },
  }));
  deepEqual(issues, []);
  equal(config.maxBatchSize, 6);
  equal(config.input[0]?.dataType, 11);
  equal(config.input[0]?.dims.join(), "4,-1");
  equal(config.schedulingChoice.case, "dynamicBatching");
});

Deno.test("parseModelConfigJson() accepts a single element for a list and true and false as text", () => {
  const { config, issues } = parseModelConfigJson(JSON.stringify({
    input: { name: "A", dims: 4 },
    dynamic_batching: { preserve_ordering: "true", preferred_batch_size: "2" },
  }));
  deepEqual(issues, []);
  equal(config.input[0]?.dims.join(), "4");
  const { value } = config.schedulingChoice;
  equal(value?.$typeName === "inference.ModelDynamicBatching" && value.preserveOrdering, true);
});

Deno.test("parseModelConfigJson() reports unknown names with the nearest right one", () => {
  const { issues } = parseModelConfigJson(
    `{"max_batchsize": 4, "input": [{"data_type": "TYPE_FLOAT", "dim": [4]}], "output": [5]}`,
  );
  deepEqual(issues.map(({ path, hint }) => [path, hint]), [
    ["max_batchsize", "did you mean max_batch_size?"],
    ["input[0].data_type", "did you mean TYPE_FP32?"],
    ["input[0].dim", "did you mean dims?"],
    ["output[0]", undefined],
  ]);
});

Deno.test("parseModelConfigJson() reports what is no JSON or of the wrong kind", () => {
  for (
    const text of ["", "max_batch_size: 4", "[]", `{"max_batch_size":"many"}`, "[".repeat(1e5)]
  ) {
    equal(parseModelConfigJson(text).issues.length, 1, text.slice(0, 40));
  }
});

Deno.test("parseModelConfigJson() reads keys without quotes and the largest 64-bit number", () => {
  const { config, issues } = parseModelConfigJson(
    `{"dynamic_batching": {priority_levels: 18446744073709551615, default_priority_level: 1,},}`,
  );
  deepEqual(issues, []);
  equal(
    config.schedulingChoice.case === "dynamicBatching" &&
      config.schedulingChoice.value.priorityLevels,
    18446744073709551615n,
  );
});
