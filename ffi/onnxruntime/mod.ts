export { ELEMENT_TYPE, elementTypeName, ONNX_TYPE, onnxTypeName } from "./element_type.ts";
export { type GlobalThreadPools, OrtEnvironment } from "./environment.ts";
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
