export { OnnxBackend } from "./onnx_backend.ts";
