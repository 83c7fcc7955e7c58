export { OpenVinoBackend } from "./openvino_backend.ts";
