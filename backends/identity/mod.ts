export { createIdentityBackend } from "./identity_backend.ts";
