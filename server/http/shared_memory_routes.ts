import { ServerError } from "../../proto/status.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import type { HttpContext, PathParts } from "./http_context.ts";
import { jsonResponse } from "./json_response.ts";

/** `GET /v2/systemsharedmemory[/region/R]/status`: no region can be registered yet, so there is none (http.md §6). */
export function getSystemSharedMemory(
  _context: HttpContext,
  _request: HttpRequest,
  { region }: PathParts,
): HttpResponse {
  return status("system", region);
}

/** `GET /v2/cudasharedmemory[/region/R]/status`. */
export function getCudaSharedMemory(
  _context: HttpContext,
  _request: HttpRequest,
  { region }: PathParts,
): HttpResponse {
  return status("cuda", region);
}

function status(kind: "system" | "cuda", region: string): HttpResponse {
  if (region === "") return jsonResponse([]);
  throw new ServerError("NOT_FOUND", `Unable to find ${kind} shared memory region: '${region}'`);
}

/** `POST` to register or unregister regions of either kind, while clients may not use shared memory. */
export function postSharedMemory(): HttpResponse {
  throw new ServerError(
    "UNSUPPORTED",
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.",
  );
}
