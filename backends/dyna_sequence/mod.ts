export { createDynaSequenceBackend } from "./dyna_sequence_backend.ts";
