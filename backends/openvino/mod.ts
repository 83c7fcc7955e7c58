export { TENSORFLOW_PLACE } from "../model_path.ts";
export { isOpenVinoThere, OpenVinoBackend } from "./openvino_backend.ts";
