import { ServerError, type StatusCode } from "../../proto/status.ts";
import type { HttpResponse } from "../transport/transport.ts";
import { type HeaderFields, jsonResponse } from "./json_response.ts";

const HTTP_STATUS: Readonly<Record<StatusCode, number>> = {
  UNKNOWN: 400,
  INTERNAL: 500,
  NOT_FOUND: 404,
  INVALID_ARG: 400,
  UNAVAILABLE: 503,
  UNSUPPORTED: 501,
  ALREADY_EXISTS: 400,
  CANCELLED: 400,
};

/** The answer to whatever went wrong (http.md §1.1): its status and `{"error":"<message>"}`. */
export function errorResponse(reason: unknown, headers: HeaderFields = []): HttpResponse {
  const error = ServerError.from(reason);
  return statusResponse(httpStatus(error), error.message, headers);
}

/** The status that tells of an error (http.md §1.1). */
export function httpStatus({ code }: ServerError): number {
  return HTTP_STATUS[code];
}

/** An error that has no code of its own, such as 404 for an unknown path. */
export function statusResponse(
  status: number,
  message: string,
  headers: HeaderFields = [],
): HttpResponse {
  return jsonResponse({ error: message }, { status, headers });
}
