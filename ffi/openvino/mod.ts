export { OvCompiledModel, type OvPort, OvStageError } from "./compiled_model.ts";
export type { OvElementType } from "./element_type.ts";
export { INFER_CANCELLED, OvError } from "./error.ts";
export type { OvInferRequest } from "./infer_request.ts";
export { OvRuntime } from "./runtime.ts";
export { MAX_PROPERTY_COUNT } from "./symbols.ts";
export { OvTensor } from "./tensor.ts";
