export { TENSORFLOW_PLACE } from "./model_file.ts";
export { OpenVinoBackend } from "./openvino_backend.ts";
