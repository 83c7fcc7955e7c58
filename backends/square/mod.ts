export { createSquareBackend } from "./square_backend.ts";
