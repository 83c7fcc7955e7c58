export { TensorRtBackend } from "./tensorrt_backend.ts";
