export { TF_DATA_TYPE, tfDataTypeName } from "./element_type.ts";
export { TfGraph, type TfPort } from "./graph.ts";
export { TfRuntime } from "./runtime.ts";
export { type TfFeed, TfSession } from "./session.ts";
export { TfError } from "./status.ts";
export { TfTensor } from "./tensor.ts";
