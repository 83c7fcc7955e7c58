export { TypeScriptBackend } from "./typescript_backend.ts";
