export { ELEMENT_TYPE, elementTypeName, ONNX_TYPE, onnxTypeName } from "./element_type.ts";
export { checkOrtLibrary, type GlobalThreadPools, OrtEnvironment } from "./environment.ts";
export { createTensorAt, OrtIoBinding, OrtMemory } from "./io_binding.ts";
export { OrtError, takeStatus } from "./error.ts";
export { OrtRunOptions, OrtSession } from "./session.ts";
export { GRAPH_OPTIMIZATION, type SessionSettings } from "./session_options.ts";
export type { SessionSignature, TensorSignature } from "./signature.ts";
export { lendTensor, OrtTensor, type TensorLoan } from "./tensor.ts";
export {
  copyTensor,
  createStringTensor,
  createTensorOver,
  readStrings,
  readValueShape,
  type StringRanges,
  viewTensor,
} from "./value.ts";
export { listProviders, PROVIDER_NAMES, type ProviderSettings } from "./providers.ts";
export { missingBridge, providerReason } from "./provider_probe.ts";
export {
  type NodeAssignment,
  readAssignment,
  RECORD_ASSIGNMENT_ENTRY,
} from "./graph_assignment.ts";
