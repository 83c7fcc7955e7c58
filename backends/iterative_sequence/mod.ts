export { createIterativeSequenceBackend } from "./iterative_sequence_backend.ts";
