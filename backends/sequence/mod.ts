export { createSequenceBackend } from "./sequence_backend.ts";
