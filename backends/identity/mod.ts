export { IdentityBackend } from "./identity_backend.ts";
