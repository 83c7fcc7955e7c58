export { createImplicitStateBackend } from "./implicit_state_backend.ts";
