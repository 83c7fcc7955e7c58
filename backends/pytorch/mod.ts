export { PyTorchBackend } from "./pytorch_backend.ts";
