export { createRepeatBackend } from "./repeat_backend.ts";
