import { ServerError } from "../../proto/status.ts";
import type { NodeAssignment, OrtError, ProviderSettings } from "../../ffi/onnxruntime/mod.ts";
import { DEVICE_CLASS_NAMES, type DeviceClass } from "../device_list.ts";
import { brokenFileHint } from "../onnx_model_file.ts";
import { runtimeError } from "./run_session.ts";

/** Entry of a session's configuration by which a device runs all nodes or none. */
export const NO_CPU_FALLBACK_ENTRY = "session.disable_cpu_ep_fallback";

/** The runtime's words for a file that holds no model. */
const NO_MODEL = /Protobuf parsing failed|ModelProto does not have a graph/;
/** Its words for an operator that no provider has; they name it. */
const NO_OPERATOR =
  /Could not find an implementation for|is not a registered function\/op|No Op registered for/;
const FALLBACK_REFUSED = /fallback to CPU EP has been explicitly disabled/;
const NO_LIBRARY = /Failed to load (?:shared )?library|cannot open shared object file/;

/** True when a session failed since a device lacks operators that the CPU has. */
export function lacksOperators({ message }: OrtError): boolean {
  return FALLBACK_REFUSED.test(message);
}

/** What a person is told about a session that could not be made: the runtime's words, and a way out. */
export async function explainSessionError(
  error: OrtError,
  { path, libraryPath, version }: {
    readonly path: string;
    readonly libraryPath: string;
    readonly version: string;
  },
): Promise<ServerError> {
  const { code, message } = runtimeError(error);
  let hint = "";
  if (NO_MODEL.test(message)) hint = await brokenFileHint(path);
  else if (NO_OPERATOR.test(message)) {
    hint = `; ONNX Runtime ${version} has no such operator: export the model for another opset, ` +
      `name a newer library with --backend-config=onnxruntime,library=FILE, or the operator's own ` +
      `with model_operations { op_library_filename }`;
  } else if (NO_LIBRARY.test(message)) {
    hint = `; the provider of ${libraryPath} needs libraries that the system's loader does not ` +
      `find (LD_LIBRARY_PATH): CUDA and cuDNN, for TensorRT also libnvinfer, in the versions that ` +
      `ONNX Runtime ${version} was built for`;
  }
  const text = hint === "" ? message : message.replace(/\.$/, "") + hint;
  return new ServerError(code, text, { cause: error });
}

/** Tells which nodes a device lacks that was to run all of them. */
export function lackedOperators(
  modelName: string,
  { device, accelerator }: {
    readonly device: DeviceClass;
    /** Absent = the device itself. */
    readonly accelerator?: string | undefined;
  },
  nodes: readonly NodeAssignment[],
): ServerError {
  const lacked = nodesOnCpu(nodes);
  const named = lacked.slice(0, NAMED_NODES).map(({ node, operator }) =>
    node === "" ? `'${operator}'` : `'${operator}' (node '${node}')`
  );
  const more = lacked.length > NAMED_NODES ? ` and ${lacked.length - NAMED_NODES} more` : "";
  const what = named.length === 0 ? "some operators" : named.join(", ") + more;
  return new ServerError(
    "UNSUPPORTED",
    `model '${modelName}' cannot run on ${
      accelerator ?? DEVICE_CLASS_NAMES[device]
    } alone, which lacks ${what}: without the parameter '${NO_CPU_FALLBACK_ENTRY}' these run on ` +
      (accelerator === undefined
        ? "the CPU; or take KIND_CPU or KIND_AUTO"
        : "ONNX Runtime's own provider for CPUs"),
  );
}

const NAMED_NODES = 5;

/** Nodes that run on the CPU. */
export function nodesOnCpu(nodes: readonly NodeAssignment[]): NodeAssignment[] {
  return nodes.filter(({ provider }) => provider === CPU_PROVIDER);
}

const CPU_PROVIDER = "CPUExecutionProvider";

/** Such as `Slice (2), Gather`; "" for none. */
export function countOperators(nodes: readonly NodeAssignment[]): string {
  const counts = new Map<string, number>();
  for (const { operator } of nodes) counts.set(operator, (counts.get(operator) ?? 0) + 1);
  return [...counts].map(([name, count]) => count === 1 ? name : `${name} (${count})`).join(", ");
}

/** What brings a provider that a library was built without or whose file it lacks. */
export const PROVIDER_PACKAGES: Readonly<Record<ProviderSettings["name"], string>> = {
  CUDA:
    "the NuGet package Microsoft.ML.OnnxRuntime.Gpu.Linux of the same version, with libraries " +
    "of CUDA and cuDNN from NVIDIA",
  TensorRT: "the NuGet package Microsoft.ML.OnnxRuntime.Gpu.Linux of the same version, with " +
    "libnvinfer and libraries of CUDA and cuDNN from NVIDIA",
  OpenVINO: "the PyPI package onnxruntime-openvino or the NuGet package " +
    "Intel.ML.OnnxRuntime.OpenVino",
  WebGPU: "the npm package onnxruntime-node",
};
