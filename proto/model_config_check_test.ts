import { deepEqual, equal, match } from "node:assert/strict";
import {
  checkInstanceGroups,
  checkModelConfig,
  checkModelIo,
  normalizeInstanceGroups,
  normalizeModelConfig,
  parseModelConfig,
} from "./model_config.ts";
import type { ConfigIssue } from "./model_config_issue.ts";
import type { ModelConfig } from "./gen/model_config_pb.ts";

const INPUT = `input { name: "A" data_type: TYPE_FP32 dims: 4 }`;
const OUTPUT = `output { name: "B" data_type: TYPE_FP32 dims: 4 }`;
const ONNX = `backend: "onnxruntime" platform: "onnxruntime_onnx"`;

function configOf(text: string): ModelConfig {
  const { config, issues } = parseModelConfig(`name: "m" ${text}`, "c");
  deepEqual(issues, []);
  normalizeModelConfig(config);
  return config;
}

function pathsAndMessages(issues: readonly ConfigIssue[]): string[] {
  return issues.map(({ path, message }) => `${path} | ${message}`);
}

const MODEL_FAULTS: readonly [string, readonly string[]][] = [
  [`platform: "onnx"`, ["platform | unexpected platform type 'onnx' for m"]],
  [
    `backend: "onnxruntime" platform: "tensorrt_plan"`,
    ["platform | unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime"],
  ],
  [
    `backend: "onnxruntime"`,
    ["platform | unexpected 'platform' and 'backend' pair, got:, onnxruntime"],
  ],
  [`backend: "mine" platform: "anything"`, []],
  [`backend: "pytorch" platform: "torch_aoti"`, []],
  [
    `${ONNX} max_batch_size: -1`,
    ["max_batch_size | 'max_batch_size' must be non-negative value for m"],
  ],
  [
    `${ONNX} max_batch_size: 4 dynamic_batching { preferred_batch_size: [ 0, 4, 5 ] }`,
    [
      "dynamic_batching.preferred_batch_size[0] | dynamic batching preferred size must be positive for m",
      "dynamic_batching.preferred_batch_size[2] | dynamic batching preferred size must be <= max batch size for m",
    ],
  ],
  [
    `${ONNX} dynamic_batching { priority_levels: 2 priority_queue_policy { key: 3 } }`,
    [
      "dynamic_batching.default_priority_level | default priority level must be in range [1, 2] for m",
      "dynamic_batching.priority_queue_policy[3] | priority queue policy must have priority level in range [1, 2] for m",
    ],
  ],
  [
    `${ONNX} dynamic_batching { preserve_ordering: true priority_levels: 2 default_priority_level: 1
       default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5 }
       priority_queue_policy { key: 2 value { timeout_action: DELAY } } }`,
    [
      "dynamic_batching.priority_levels | Only one priority level is allowed when 'preserve_ordering' is true for m",
      "dynamic_batching.default_queue_policy.timeout_action | Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for m",
    ],
  ],
  [
    `${ONNX} sequence_batching { direct { minimum_slot_utilization: 1.5 }
       control_input { name: "S" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 1 ] } }
       control_input { name: "S" control { kind: CONTROL_SEQUENCE_START } }
       control_input { control { kind: CONTROL_SEQUENCE_CORRID } } }`,
    [
      "sequence_batching.control_input[0].control[0] | sequence batching control 'int32_false_true' must have exactly 2 entries for CONTROL_SEQUENCE_START for m",
      "sequence_batching.control_input[1].name | sequence batching control tensor 'S' is specified for multiple control kinds for m",
      "sequence_batching.control_input[1].control[0] | sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m",
      "sequence_batching.control_input[1].control[0] | sequence batching must specify either 'int32_false_true', 'fp32_false_true' or 'bool_false_true' for CONTROL_SEQUENCE_START for m",
      "sequence_batching.control_input[2] | sequence batching control tensor must have a name for m",
      "sequence_batching.control_input[2].control[0] | unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
      "sequence_batching.direct.minimum_slot_utilization | sequence batching minimum slot utilization must be in range (0.0, 1.0] for m",
    ],
  ],
  [
    `platform: "ensemble" backend: "x"`,
    [
      "backend | Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
      "platform | ensemble scheduling must be set for ensemble m whose platform is ensemble",
    ],
  ],
  [
    `platform: "ensemble" optimization { } instance_group { } ensemble_scheduling { }`,
    [
      "instance_group | instance group should not be specified for ensemble 'm'",
      "optimization | optimization should not be specified for ensemble 'm'",
      "ensemble_scheduling.step | must specify 'step' for ensemble 'm'",
    ],
  ],
  [
    `platform: "ensemble" ${INPUT} ensemble_scheduling { step { input_map { key: "X" value: "A" } }
       step { model_name: "a" input_map { key: "X" value: "A" } output_map { key: "Y" value: "A" } } }`,
    [
      "ensemble_scheduling.step[0] | must specify 'model_name' in step 0 of ensemble 'm'",
      "ensemble_scheduling.step[0] | must specify 'output_map' in step 0 of ensemble 'm'",
      "ensemble_scheduling.step[1].output_map | ensemble input 'A' can not appear in an output map for ensemble 'm' step 1",
    ],
  ],
  [
    `platform: "ensemble" ${INPUT} ${OUTPUT} input { name: "SPARE" } output { name: "NONE" }
       ensemble_scheduling { step { model_name: "a" input_map { key: "X" value: "lost" }
         output_map { key: "Y" value: "B" } output_map { key: "Z" value: "aside" } } }`,
    [
      "input[0] | ensemble input 'A' for ensemble m' is not used",
      "input[1] | ensemble input 'SPARE' for ensemble m' is not used",
      "output[0] | output 'B' for ensemble 'm' is not written: at least one of its depending tensors, 'lost', is not connected",
      "output[1] | ensemble output 'NONE' for ensemble m' is not used",
      "ensemble_scheduling | ensemble tensor 'aside' is unused in ensemble 'm'",
    ],
  ],
  [
    `${ONNX} ${INPUT} ${OUTPUT} response_cache { enable: true } sequence_batching { }`,
    [
      "response_cache | Response Cache does not currently support model m with sequence batching scheduler. " +
      "Please disable the response cache.",
    ],
  ],
  [
    `${ONNX} ${INPUT} ${OUTPUT} response_cache { enable: true } model_transaction_policy { decoupled: true }`,
    [
      "model_transaction_policy.decoupled | Response Cache does not currently support model m with 'decoupled' " +
      "transaction policy. Please disable the response cache.",
    ],
  ],
  [
    `${ONNX} ${INPUT} ${OUTPUT} response_cache { enable: true } dynamic_batching { }`,
    [],
  ],
  [
    `${ONNX} model_metrics { metric_control { } metric_control { metric_identifier { } histogram_options { } } }`,
    [
      "model_metrics.metric_control[0] | metric control must specify 'metric_identifier' for m",
      "model_metrics.metric_control[0] | metric control must specify 'histogram_options' for m",
      "model_metrics.metric_control[1].metric_identifier | metric identifier must specify non-empty 'family' for m",
      "model_metrics.metric_control[1].histogram_options | histogram options must specify non-empty 'buckets' for m",
    ],
  ],
];

Deno.test("checkModelConfig() reports every fault with the reference's text", () => {
  for (const [text, expected] of MODEL_FAULTS) {
    deepEqual(pathsAndMessages(checkModelConfig(configOf(text))), expected, text);
  }
});

const IO_FAULTS: readonly [string, readonly string[]][] = [
  [
    `input { } output { name: "B" dims: [ 0, -2 ] }`,
    [
      "input[0] | model input must specify 'name' for m",
      "input[0].data_type | model input '' must specify 'data_type' for m",
      "input[0].dims | model input '' must specify 'dims' for m",
      "output[0].data_type | model output 'B' must specify 'data_type' for m",
      "output[0].dims[0] | model output 'B' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
      "output[0].dims[1] | model output 'B' dimension must be integer >= 1, or -1 to indicate a variable-size dimension for m",
    ],
  ],
  [
    `input { name: "A" data_type: TYPE_FP32 dims: 1 reshape { } }`,
    ["input[0].reshape | model input 'A' cannot have empty reshape for non-batching model as scalar tensors are not supported for m"],
  ],
  [`max_batch_size: 2 input { name: "A" data_type: TYPE_FP32 dims: 1 reshape { } }`, []],
  [
    `max_batch_size: 2 input { name: "A" data_type: TYPE_FP32 dims: [ 2, 1 ] reshape { } }`,
    ["input[0].reshape | model input 'A' has different size for dims and reshape for m"],
  ],
  [
    `max_batch_size: 2 input { name: "A" data_type: TYPE_FP32 dims: -1 reshape { } }`,
    ["input[0].reshape | model input 'A' has different size for dims and reshape for m"],
  ],
  [
    `input { name: "A" data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ -1, -1 ] } }`,
    ["input[0].reshape | model input 'A' has different number of variable-size dimensions for dims and reshape for m"],
  ],
  [
    `input { name: "A" data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ 4, -1 ] } }`,
    ["input[0].reshape | model input 'A' has different size for dims and reshape for m"],
  ],
  [`input { name: "A" data_type: TYPE_FP32 dims: [ -1, 2, 2 ] reshape { shape: [ -1, 4 ] } }`, []],
  [
    `input { name: "A" data_type: TYPE_FP32 dims: 4 format: FORMAT_NHWC is_shape_tensor: true }`,
    [
      "input[0].is_shape_tensor | model input 'A' shape tensors are only supported for TensorRT platform for m",
      "input[0].format | model input NHWC/NCHW require 3 dims for m",
    ],
  ],
  [
    `${INPUT} ${OUTPUT} batch_input { data_type: TYPE_INT64 source_input: "Z" }
       batch_output { target_name: [ "B", "B", "C" ] }`,
    [
      "batch_input[0].data_type | batch input data type must be TYPE_INT32 or TYPE_FP32 for m",
      "batch_input[0].source_input[0] | unknown source input name 'Z' for m",
      "batch_input[0] | batch input kind 'BATCH_ELEMENT_COUNT' must specify 'target_name' for m",
      "batch_output[0] | batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 0 for m",
      "batch_output[0].target_name[1] | target output name 'B' can only be specified once for m",
      "batch_output[0].target_name[2] | unknown target output name 'C' for m",
    ],
  ],
  [
    `default_model_filename: "../x/model.onnx" output { name: "B" data_type: TYPE_FP32 dims: 4 label_filename: "a/../../l" }`,
    [
      "output[0].label_filename | label file path 'a/../../l' for output 'B' in model 'm' is outside model directory",
      "default_model_filename | model file path '../x/model.onnx' in model 'm' is outside model directory",
    ],
  ],
  [
    `sequence_batching {
       state { input_name: "S" data_type: TYPE_FP32 dims: [ 1, 2 ]
         initial_state { data_type: TYPE_INT32 dims: [ -1 ] } }
       state { input_name: "S" use_growable_memory: true } state { } }`,
    [
      "sequence_batching.state[0].initial_state[0].data_type | The data type used for 'initial_state' field of state 'S' does not match the state data type.",
      "sequence_batching.state[0].initial_state[0] | Field 'name' must be set when using initial_state for state input 'S'.",
      "sequence_batching.state[0].initial_state[0].dims | Number of dimensions in 'initial_state' doesn't match the size of 'state' dimensions for state input 'S'. 1 != 2",
      "sequence_batching.state[0].initial_state[0].dims[0] | 'initial_state' field for state input name 'S' contains variable dimensions.",
      "sequence_batching.state[0].initial_state[0] | initial_state setting expects state'S' to have state_data set",
      "sequence_batching.state[1].input_name | State input name 'S' specified more than once.",
      "sequence_batching.state[1].data_type | state 'S' must specify 'data_type' for m",
      "sequence_batching.state[1].use_growable_memory | 'use_growable_memory' of state 'S' needs 'use_same_buffer_for_input_output' and an instance group of KIND_GPU for m",
      "sequence_batching.state[2].input_name | state must specify 'input_name' for m",
      "sequence_batching.state[2].data_type | state '' must specify 'data_type' for m",
      "sequence_batching.state[0].output_name | sequence state 'S' must specify 'output_name' for m",
      "sequence_batching.state[1].output_name | sequence state 'S' must specify 'output_name' for m",
      "sequence_batching.state[2].output_name | sequence state '' must specify 'output_name' for m",
    ],
  ],
  [
    `${INPUT} ${OUTPUT} sequence_batching {
       control_input { name: "A" control { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } }
       control_input { name: "B" control { kind: CONTROL_SEQUENCE_START bool_false_true: [ false, true ] }
         control { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } }
       control_input { name: "C" } }`,
    [
      "sequence_batching.control_input[0] | sequence batching control tensor 'A' is fed by the server and must not be listed in 'input' too for m",
      "sequence_batching.control_input[1] | sequence batching control tensor 'B' is specified for multiple control kinds for m",
      "sequence_batching.control_input[2] | sequence batching control tensor 'C' must specify a 'control' for m",
    ],
  ],
  [
    `instance_group { kind: KIND_GPU } sequence_batching { state { input_name: "S" output_name: "T"
       data_type: TYPE_FP32 use_same_buffer_for_input_output: true use_growable_memory: true } }`,
    [
      "sequence_batching.state[0].use_growable_memory | 'use_growable_memory' of state 'S' is not supported for m: states are kept in the memory of the processor",
    ],
  ],
  [
    `${INPUT} ${OUTPUT} sequence_batching {
       control_input { name: "C" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }
       state { input_name: "A" output_name: "T" data_type: TYPE_FP32 dims: -2 }
       state { input_name: "C" output_name: "T" data_type: TYPE_FP32 dims: -1
         initial_state { name: "i" data_type: TYPE_FP32 dims: -3 zero_data: true } } }`,
    [
      "sequence_batching.state[0].dims[0] | state 'A' must have dimensions of -1 or from 0 on for m, got -2",
      "sequence_batching.state[1].initial_state[0].dims[0] | 'initial_state' field for state input name 'C' contains variable dimensions.",
      "sequence_batching.state[0].input_name | state input 'A' must not be listed in 'input' too for m: the server feeds it",
      "sequence_batching.state[1].input_name | state input 'C' must not be listed in 'control_input' too for m: the server feeds it",
      "sequence_batching.state[1].output_name | State output name 'T' specified more than once.",
    ],
  ],
];

Deno.test("checkModelConfig() says what to write instead of a platform that there is not", () => {
  const hintOf = (text: string) => checkModelConfig(configOf(text))[0]?.hint;
  equal(hintOf(`platform: "python"`), `that is a backend: backend: "python" names it`);
  match(
    hintOf(`platform: "caffe"`) ?? "",
    /^the platforms are tensorflow_savedmodel, .*torch_aoti$/,
  );
});

Deno.test("checkModelIo() reports every fault with the reference's text", () => {
  for (const [text, expected] of IO_FAULTS) {
    deepEqual(pathsAndMessages(checkModelIo(configOf(text))), expected, text);
  }
});

Deno.test("normalizeInstanceGroups() names groups, resolves AUTO and fills in counts", () => {
  const groupsOf = (text: string, count = 2) => {
    const config = configOf(text);
    normalizeInstanceGroups(config, { kind: "KIND_CPU", count });
    return config.instanceGroup.map((group) => [group.name, group.kind, group.count]);
  };
  deepEqual(groupsOf(""), [["m", 2, 2]]);
  deepEqual(groupsOf("instance_group { }"), [["m_0", 2, 2]]);
  deepEqual(groupsOf("instance_group { count: -3 }"), [["m_0", 2, 2]]);
  deepEqual(groupsOf(`instance_group [ { kind: KIND_MODEL }, { name: "x" count: 3 } ]`), [
    ["m_0", 3, 1],
    ["x", 2, 3],
  ]);
  deepEqual(groupsOf("instance_group { }", 1), [["m_0", 2, 1]]);
});

Deno.test("checkInstanceGroups() refuses GPUs, profiles, passive and endless groups", () => {
  const faultsOf = (text: string) => {
    const config = configOf(`${ONNX} ${text}`);
    normalizeInstanceGroups(config, { kind: "KIND_CPU", count: 1 });
    return checkInstanceGroups(config).map((issue) => issue.message);
  };
  const start = "instance group m_0 of model m";
  deepEqual(faultsOf("instance_group { count: 2 }"), []);
  deepEqual(faultsOf("instance_group { gpus: 0 }"), [
    `${start} has kind KIND_CPU but specifies one or more GPUs`,
  ]);
  deepEqual(faultsOf(`instance_group { profile: "0" }`), [
    `${start} and platform onnxruntime_onnxspecifies profile field which is only supported for ` +
    `TensorRT models`,
  ]);
  deepEqual(faultsOf("instance_group { kind: KIND_CPU count: -1 }"), [
    `${start} has count -1, expected a number >= 0`,
  ]);
  equal(faultsOf("instance_group { passive: true }").length, 1);
  equal(faultsOf("instance_group { count: 2000000000 }").length, 1);
  // So many on each GPU.
  const gpus = `gpus: [ ${Array(600).fill(0)} ]`;
  equal(faultsOf(`instance_group { kind: KIND_GPU count: 1 ${gpus} }`).length, 0);
  deepEqual(faultsOf(`instance_group { kind: KIND_GPU count: 2 ${gpus} }`), [
    "model m asks for 1200 instances, at most 1024 are allowed",
  ]);
});

Deno.test("checkInstanceGroups() tells what a group of KIND_GPU cannot have, and mends it without any GPU", () => {
  const faultsOf = (text: string, gpuIds: readonly number[], refused = [0]) => {
    const config = configOf(`${ONNX} ${text}`);
    normalizeInstanceGroups(config, { kind: "KIND_CPU", count: 1 });
    const refusals = new Map(refused.map((index) => [index, "tried CUDA: no driver"]));
    return checkInstanceGroups(config, { minComputeCapability: 6, gpuIds, refusals });
  };
  const start = "instance group m_0 of model m";
  const list = "GPUs with at least the minimum required CUDA compute compatibility of 6.000000 are";
  const kind = { path: "instance_group[0].kind", value: "KIND_AUTO" };
  const hint = "tried CUDA: no driver";
  deepEqual(faultsOf("instance_group { kind: KIND_GPU }", []), [{
    path: "instance_group[0].kind",
    message: `${start} has kind KIND_GPU but no GPUs are available`,
    hint,
    mend: { fields: [kind] },
  }]);
  deepEqual(faultsOf("instance_group { kind: KIND_GPU gpus: 7 }", []), [{
    path: "instance_group[0].gpus[0]",
    message: `${start} specifies invalid or unsupported gpu id 7. ${list}: none`,
    hint,
    mend: { fields: [kind, { path: "instance_group[0].gpus[0]", value: undefined }] },
  }]);
  deepEqual(faultsOf("instance_group { kind: KIND_GPU gpus: [ 1, 7 ] }", [0, 1]), [{
    path: "instance_group[0].gpus[1]",
    message: `${start} specifies invalid or unsupported gpu id 7. ${list}: 0, 1`,
    hint,
  }]);
  deepEqual(faultsOf("instance_group { kind: KIND_GPU gpus: [ 0 ] }", [0], []), []);
});

Deno.test("normalizeModelConfig() fills in defaults and can be repeated", () => {
  const config = configOf("max_batch_size: 8 dynamic_batching { } version_policy { }");
  normalizeModelConfig(config);
  equal(config.versionPolicy?.policyChoice.case, undefined);
  deepEqual(config.schedulingChoice.case, "dynamicBatching");
  deepEqual(
    config.schedulingChoice.case === "dynamicBatching" &&
      config.schedulingChoice.value.preferredBatchSize,
    [8],
  );
  equal(config.optimization?.inputPinnedMemory?.enable, true);
  equal(configOf("").versionPolicy?.policyChoice.case, "latest");
  equal(configOf(`ensemble_scheduling { }`).optimization, undefined);
});
