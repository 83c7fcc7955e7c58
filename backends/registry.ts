import { findPythonBackend } from "./backend_directory.ts";
import type { Backend, BackendContext } from "./backend.ts";
import { IsolationChoice } from "./isolated/mod.ts";

type Open = (context: BackendContext) => Promise<Backend>;

/** The one table of backends; each is loaded when a model first needs it. */
const BACKENDS: ReadonlyMap<string, Open> = new Map<string, Open>([
  ["onnxruntime", openOnnxRuntime],
  ["onnxruntime_web", async (context) => {
    const { OnnxWebBackend } = await import("./onnxruntime_web/mod.ts");
    return new OnnxWebBackend(context);
  }],
  ["tensorrt", async (context) => {
    const { TensorRtBackend } = await import("./tensorrt/mod.ts");
    return new TensorRtBackend(context);
  }],
  ["openvino", async (context) => {
    const { OpenVinoBackend } = await import("./openvino/mod.ts");
    return new OpenVinoBackend(context);
  }],
  ["pytorch", async (context) => {
    const { PyTorchBackend } = await import("./pytorch/mod.ts");
    return new PyTorchBackend(context);
  }],
  ["tensorflow", openTensorFlow],
  ["identity", async (context) => {
    const { createIdentityBackend } = await import("./identity/mod.ts");
    return createIdentityBackend(context);
  }],
  ["sequence", async (context) => {
    const { createSequenceBackend } = await import("./sequence/mod.ts");
    return createSequenceBackend(context);
  }],
  ["dyna_sequence", async (context) => {
    const { createDynaSequenceBackend } = await import("./dyna_sequence/mod.ts");
    return createDynaSequenceBackend(context);
  }],
  ["repeat", async (context) => {
    const { createRepeatBackend } = await import("./repeat/mod.ts");
    return createRepeatBackend(context);
  }],
  ["square", async (context) => {
    const { createSquareBackend } = await import("./square/mod.ts");
    return createSquareBackend(context);
  }],
  ["implicit_state", async (context) => {
    const { createImplicitStateBackend } = await import("./implicit_state/mod.ts");
    return createImplicitStateBackend(context);
  }],
  ["iterative_sequence", async (context) => {
    const { createIterativeSequenceBackend } = await import("./iterative_sequence/mod.ts");
    return createIterativeSequenceBackend(context);
  }],
  ["python", async (context) => {
    const { PythonBackend } = await import("./python/mod.ts");
    return new PythonBackend(context);
  }],
  ["typescript", async (context) => {
    const { TypeScriptBackend } = await import("./typescript/mod.ts");
    return new TypeScriptBackend(context);
  }],
  ["query", async (context) => {
    const { createQueryBackend } = await import("./query/mod.ts");
    return createQueryBackend(context);
  }],
]);

/** Names that {@linkcode openBackend} knows. */
export const BACKEND_NAMES: readonly string[] = [...BACKENDS.keys()];

/** Every model of this one has a process of its own anyway. */
const PYTHON = "python";

/** Why models of a backend cannot be in processes of their own. */
const ISOLATION_REFUSALS: ReadonlyMap<string, string> = new Map([
  [
    "typescript",
    "models in TypeScript call back into the server; they run in Workers, which are started again " +
    "when they fail",
  ],
]);

/**
 * Opens a backend: one that is built in, or a Python file of `directory` that all its models share
 * (`<directory>/<name>/model.py`). Undefined for an unknown name. With `isolation=process` among its settings or the
 * parameters of a model it is in other processes.
 */
export function openBackend(
  name: string,
  context: BackendContext,
  directory = "",
): Promise<Backend> | undefined {
  const open = BACKENDS.get(name);
  if (open === undefined || name === PYTHON) return openBackendHere(name, context, directory);
  const refusal = ISOLATION_REFUSALS.get(name);
  return IsolationChoice.open(context, {
    name,
    directory,
    openHere: () => open(context),
    ...(refusal === undefined ? {} : { refusal }),
  });
}

/** The same in this process, whatever the settings say. */
export function openBackendHere(
  name: string,
  context: BackendContext,
  directory = "",
): Promise<Backend> | undefined {
  const open = BACKENDS.get(name);
  if (open !== undefined) return open(context);
  const modelFile = findPythonBackend(directory, name);
  return modelFile === undefined ? undefined : openPythonBased(context, { name, modelFile });
}

/** The native runtime where there is one, else the one for the web under the same name. */
async function openOnnxRuntime(context: BackendContext): Promise<Backend> {
  const { findNativeRefusal, OnnxBackend } = await import("./onnxruntime/mod.ts");
  const refusal = findNativeRefusal(context.settings);
  if (refusal === undefined) return new OnnxBackend(context);
  context.log.warning(`ONNX models run on onnxruntime-web: ${refusal}`);
  const { OnnxWebBackend } = await import("./onnxruntime_web/mod.ts");
  return new OnnxWebBackend(context, "onnxruntime");
}

/** The library of TensorFlow where there is one, else OpenVINO, which reads most of such models. */
async function openTensorFlow(context: BackendContext): Promise<Backend> {
  const { findTensorFlowRefusal, TensorFlowBackend } = await import("./tensorflow/mod.ts");
  const refusal = await findTensorFlowRefusal(context.settings);
  if (refusal === undefined) return new TensorFlowBackend(context);
  const { isOpenVinoThere, OpenVinoBackend, TENSORFLOW_PLACE } = await import("./openvino/mod.ts");
  // Without either, what is missing is told by each model that needs it.
  if (!isOpenVinoThere(context.settings)) return new TensorFlowBackend(context);
  context.log.warning(`TensorFlow models run on OpenVINO: ${refusal}`);
  return new OpenVinoBackend(context, TENSORFLOW_PLACE);
}

async function openPythonBased(
  context: BackendContext,
  options: { readonly name: string; readonly modelFile: string },
): Promise<Backend> {
  const { PythonBackend } = await import("./python/mod.ts");
  return new PythonBackend(context, options);
}
