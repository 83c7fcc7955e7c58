import { tooLong } from "../../proto/http_codec.ts";
import { type JsonObject, parseJson } from "../../proto/json_value.ts";
import { ServerError } from "../../proto/status.ts";
import type { HttpRequest } from "../transport/transport.ts";
import type { HttpContext } from "./http_context.ts";

/**
 * The JSON object in the body of a request; undefined when there is no body.
 * @throws ServerError INVALID_ARG when it is too long, malformed or no object.
 */
export function readObject(
  { options }: HttpContext,
  { body }: HttpRequest,
): JsonObject | undefined {
  if (body.length === 0) return undefined;
  if (body.length > options.maxInputBytes) throw tooLong(body.length, options.maxInputBytes);
  const value = parseJson(body);
  if (value instanceof Map) return value;
  throw new ServerError("INVALID_ARG", "attempt to access JSON non-object as object");
}
