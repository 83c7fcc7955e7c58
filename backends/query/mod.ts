export { createQueryBackend } from "./query_backend.ts";
