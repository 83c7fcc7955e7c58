export { findNativeRefusal } from "./native_refusal.ts";
export { OnnxBackend } from "./onnx_backend.ts";
