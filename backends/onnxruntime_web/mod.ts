export { OnnxWebBackend } from "./web_backend.ts";
