export { findTensorFlowRefusal, TensorFlowBackend } from "./tensorflow_backend.ts";
