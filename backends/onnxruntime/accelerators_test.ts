import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { prefersWebGpu, readProviders, type SessionDevice } from "./accelerators.ts";

interface Entry {
  readonly name: string;
  readonly parameters?: Readonly<Record<string, string>>;
}

function configOf(
  { gpu = [], cpu = [], parameters = {} }: {
    readonly gpu?: readonly Entry[];
    readonly cpu?: readonly Entry[];
    readonly parameters?: Readonly<Record<string, string>>;
  },
) {
  const plain = ({ name, parameters = {} }: Entry) => ({ name, parameters: { ...parameters } });
  return create(ModelConfigSchema, {
    parameters: Object.fromEntries(
      Object.entries(parameters).map(([key, stringValue]) => [key, { stringValue }]),
    ),
    optimization: {
      executionAccelerators: {
        gpuExecutionAccelerator: gpu.map(plain),
        cpuExecutionAccelerator: cpu.map(plain),
      },
    },
  });
}

const GPU_1: SessionDevice = { device: "cuda", deviceId: 1 };
const CPU: SessionDevice = { device: "cpu", deviceId: 0 };
const WEBGPU: SessionDevice = { device: "webgpu", deviceId: 0 };

Deno.test("readProviders() gives CUDA its device and the parameters of the model", () => {
  const config = configOf({
    parameters: {
      cudnn_conv_algo_search: "1",
      gpu_mem_limit: "1000000",
      arena_extend_strategy: "1",
      do_copy_in_default_stream: "0",
      other: "x",
    },
  });
  assert.deepEqual(readProviders(config, GPU_1), [{
    name: "CUDA",
    options: {
      device_id: "1",
      cudnn_conv_algo_search: "HEURISTIC",
      gpu_mem_limit: "1000000",
      arena_extend_strategy: "kSameAsRequested",
      do_copy_in_default_stream: "0",
    },
  }]);
});

Deno.test("readProviders() prefers the parameters of the accelerator cuda to those of the model", () => {
  const config = configOf({
    gpu: [{ name: "cuda", parameters: { cudnn_conv_algo_search: "DEFAULT", use_tf32: "0" } }],
    parameters: { cudnn_conv_algo_search: "0" },
  });
  assert.deepEqual(readProviders(config, GPU_1)[0]?.options, {
    device_id: "1",
    cudnn_conv_algo_search: "DEFAULT",
    use_tf32: "0",
  });
});

Deno.test("readProviders() puts TensorRT before CUDA and translates its parameters", () => {
  const tensorRt = (parameters: Record<string, string>) =>
    configOf({ gpu: [{ name: "tensorrt", parameters }] });
  const config = tensorRt({
    precision_mode: "FP16",
    max_workspace_size_bytes: "1073741824",
    int8_calibration_table_name: "table",
    int8_use_native_calibration_table: "1",
    trt_builder_optimization_level: "2",
  });
  const providers = readProviders(config, GPU_1);
  assert.deepEqual(providers.map(({ name }) => name), ["TensorRT", "CUDA"]);
  assert.deepEqual(providers[0]?.options, {
    device_id: "1",
    trt_fp16_enable: "1",
    trt_max_workspace_size: "1073741824",
    trt_int8_calibration_table_name: "table",
    trt_int8_use_native_calibration_table: "1",
    trt_builder_optimization_level: "2",
  });
});

Deno.test("readProviders() leaves accelerators for GPUs out on a CPU, whatever they are", () => {
  const gpu = [{ name: "tensorrt", parameters: { precision_mode: "?" } }, { name: "other" }];
  assert.deepEqual(readProviders(configOf({ gpu }), CPU), []);
});

Deno.test("readProviders() gives OpenVINO the CPU unless the model says otherwise", () => {
  const read = (parameters: Record<string, string>) =>
    readProviders(configOf({ cpu: [{ name: "openvino", parameters }] }), CPU);
  assert.deepEqual(read({}), [{ name: "OpenVINO", options: { device_type: "CPU" } }]);
  assert.deepEqual(read({ device_type: "GPU", num_streams: "2" })[0]?.options, {
    device_type: "GPU",
    num_streams: "2",
  });
});

Deno.test("readProviders() gives WebGPU the parameters of its accelerator", () => {
  const gpu = [{ name: "webgpu", parameters: { preferredLayout: "NCHW" } }, { name: "cuda" }];
  assert.deepEqual(readProviders(configOf({ gpu }), WEBGPU), [
    { name: "WebGPU", options: { preferredLayout: "NCHW" } },
  ]);
});

Deno.test("readProviders() names every wrong entry with what is expected", () => {
  const config = configOf({
    gpu: [
      { name: "tensorrt", parameters: { precision_mode: "FP8", workspace: "1" } },
      { name: "openvino" },
    ],
    cpu: [{ name: "cuda" }],
    parameters: { cudnn_conv_algo_search: "7" },
  });
  assert.throws(() => readProviders(config, GPU_1), (error: Error) => {
    assert.match(error.message, /unsupported precision mode 'FP8' is requested.*FP32, FP16, INT8/);
    assert.match(error.message, /unknown parameter 'workspace' is provided for TensorRT/);
    assert.match(error.message, /unknown Execution Accelerator 'openvino'.*cpu_execution/);
    assert.match(error.message, /unknown Execution Accelerator 'cuda'.*gpu_execution/);
    assert.match(error.message, /value '7' provided for cudnn_conv_algo_search.*1 = HEURISTIC/);
    return true;
  });
});

Deno.test("prefersWebGpu() tells whether a model names it alone", () => {
  assert.equal(prefersWebGpu(configOf({ gpu: [{ name: "webgpu" }] })), true);
  assert.equal(prefersWebGpu(configOf({ gpu: [{ name: "webgpu" }, { name: "cuda" }] })), false);
  assert.equal(prefersWebGpu(configOf({})), false);
});
