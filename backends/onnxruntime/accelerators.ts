import type {
  ModelConfig,
  ModelOptimizationPolicy_ExecutionAccelerators_Accelerator as Accelerator,
} from "../../proto/gen/model_config_pb.ts";
import { configError, type ConfigIssue } from "../../proto/model_config.ts";
import type { ProviderSettings } from "../../ffi/onnxruntime/mod.ts";
import type { DeviceClass } from "../device_list.ts";

/** Where a session runs. */
export interface SessionDevice {
  readonly device: DeviceClass;
  /** Counts among the devices of the family. */
  readonly deviceId: number;
}

/** Names under `gpu_execution_accelerator`, and those under `cpu_execution_accelerator`. */
const GPU_ACCELERATORS = ["tensorrt", "cuda", "webgpu"];
const CPU_ACCELERATORS = ["openvino"];

const PATH = "optimization.execution_accelerators";

/**
 * The providers that a session on a device gets, best first, by `optimization.execution_accelerators` and the model's
 * parameters (config.md §10.2, §10.3). Those for GPUs do not matter on a CPU.
 * @throws ServerError INVALID_ARG with every wrong entry.
 */
export function readProviders(
  config: ModelConfig,
  { device, deviceId }: SessionDevice,
): ProviderSettings[] {
  const accelerators = config.optimization?.executionAccelerators;
  const issues: ConfigIssue[] = [];
  const forGpu = device === "cpu" ? [] : accelerators?.gpuExecutionAccelerator ?? [];
  const gpu = readList(forGpu, "gpu", issues);
  const cpu = readList(accelerators?.cpuExecutionAccelerator ?? [], "cpu", issues);
  const tensorRt = gpu.filter(({ name }) => name === "tensorrt").map((each) =>
    readTensorRt(each, deviceId, issues)
  );
  const forCuda = device === "cuda" ? config : undefined;
  const cuda = readCuda(forCuda, gpu.find(({ name }) => name === "cuda"), { deviceId, issues });
  if (issues.length > 0) throw configError(issues);
  switch (device) {
    case "cuda":
      return [...tensorRt, cuda];
    case "webgpu": {
      const own = gpu.find(({ name }) => name === "webgpu");
      return [{ name: "WebGPU", options: { ...own?.parameters } }];
    }
    case "cpu":
      return cpu.map(({ parameters }) => ({
        name: "OpenVINO",
        options: { ["device_type"]: "CPU", ...parameters },
      }));
  }
}

/** True when the model names `webgpu` and neither `cuda` nor `tensorrt` for GPUs. */
export function prefersWebGpu({ optimization }: ModelConfig): boolean {
  const names =
    optimization?.executionAccelerators?.gpuExecutionAccelerator.map((each) => each.name) ?? [];
  return names.includes("webgpu") && !names.includes("cuda") && !names.includes("tensorrt");
}

interface NamedAccelerator {
  readonly name: string;
  readonly parameters: Readonly<Record<string, string>>;
  readonly path: string;
}

function readList(
  list: readonly Accelerator[],
  device: "gpu" | "cpu",
  issues: ConfigIssue[],
): NamedAccelerator[] {
  const [known, other] = device === "gpu"
    ? [GPU_ACCELERATORS, CPU_ACCELERATORS]
    : [CPU_ACCELERATORS, GPU_ACCELERATORS];
  return list.flatMap(({ name, parameters }, index) => {
    const path = `${PATH}.${device}_execution_accelerator[${index}]`;
    if (known.includes(name)) return { name, parameters, path };
    const hint = other.includes(name)
      ? `'${name}' belongs under ${device === "gpu" ? "cpu" : "gpu"}_execution_accelerator`
      : `${known.join(", ")} ${known.length === 1 ? "is" : "are"} known here`;
    issues.push({
      path,
      message: `unknown Execution Accelerator '${name}' is requested`,
      hint: `${hint}; take the entry out`,
    });
    return [];
  });
}

/** Parameters of `tensorrt` that have another name in the runtime; those with `trt_` go there as they are. */
const TENSORRT_KEYS: ReadonlyMap<string, string> = new Map([
  ["max_workspace_size_bytes", "trt_max_workspace_size"],
  ["int8_calibration_table_name", "trt_int8_calibration_table_name"],
  ["int8_use_native_calibration_table", "trt_int8_use_native_calibration_table"],
]);

/** Option of the runtime that a precision mode turns on. */
const PRECISION_MODES: ReadonlyMap<string, string | undefined> = new Map([
  ["FP32", undefined],
  ["FP16", "trt_fp16_enable"],
  ["INT8", "trt_int8_enable"],
]);

function readTensorRt(
  { parameters, path }: NamedAccelerator,
  deviceId: number,
  issues: ConfigIssue[],
): ProviderSettings {
  const options: Record<string, string> = { ["device_id"]: String(deviceId) };
  for (const [key, value] of Object.entries(parameters)) {
    const place = `${path}.parameters.${key}`;
    if (key === "precision_mode") {
      const option = PRECISION_MODES.get(value);
      if (option !== undefined) options[option] = "1";
      if (!PRECISION_MODES.has(value)) {
        const message = `unsupported precision mode '${value}' is requested`;
        const hint = `${[...PRECISION_MODES.keys()].join(", ")} are expected`;
        issues.push({ path: place, message, hint });
      }
    } else if (key.startsWith("trt_")) options[key] = value;
    else if (TENSORRT_KEYS.has(key)) options[TENSORRT_KEYS.get(key)!] = value;
    else {
      const message = `unknown parameter '${key}' is provided for TensorRT Execution Accelerator`;
      const names = [
        "precision_mode",
        ...TENSORRT_KEYS.keys(),
        "those of ONNX Runtime (trt_…)",
      ];
      issues.push({ path: place, message, hint: `${names.join(", ")} are expected` });
    }
  }
  return { name: "TensorRT", options };
}

/** Parameters of a model for CUDA; the numbers stand for words of the runtime. */
const CUDA_KEYS: ReadonlyMap<string, ReadonlyMap<string, string> | undefined> = new Map([
  ["cudnn_conv_algo_search", new Map([["0", "EXHAUSTIVE"], ["1", "HEURISTIC"], ["2", "DEFAULT"]])],
  ["arena_extend_strategy", new Map([["0", "kNextPowerOfTwo"], ["1", "kSameAsRequested"]])],
  ["gpu_mem_limit", undefined],
  ["do_copy_in_default_stream", undefined],
]);

function readCuda(
  config: ModelConfig | undefined,
  accelerator: NamedAccelerator | undefined,
  { deviceId, issues }: { readonly deviceId: number; readonly issues: ConfigIssue[] },
): ProviderSettings {
  const options: Record<string, string> = { ["device_id"]: String(deviceId) };
  for (const key of CUDA_KEYS.keys()) {
    const value = config?.parameters[key]?.stringValue;
    if (value !== undefined && value !== "") {
      take(key, value, `parameters[${key}]`);
    }
  }
  for (const [key, value] of Object.entries(accelerator?.parameters ?? {})) {
    take(key, value, `${accelerator!.path}.parameters.${key}`);
  }
  return { name: "CUDA", options };

  function take(key: string, value: string, path: string): void {
    const words = CUDA_KEYS.get(key);
    if (words === undefined || [...words.values()].includes(value)) {
      options[key] = value;
      return;
    }
    const word = words.get(value);
    if (word !== undefined) options[key] = word;
    else {
      const expected = [...words].map((pair) => pair.join(" = ")).join(", ");
      const message = `Invalid configuration value '${value}' provided for ${key}`;
      issues.push({ path, message, hint: `${expected} are expected` });
    }
  }
}
