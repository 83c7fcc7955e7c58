import { decodeGenerateRequest, encodeGenerateResponse } from "../../proto/http_codec_generate.ts";
import { ServerError } from "../../proto/status.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import type { HttpContext, PathParts } from "./http_context.ts";
import { type HeaderFields, JSON_HEADERS } from "./json_response.ts";

const EVENT_HEADERS: HeaderFields = [["content-type", "text/event-stream; charset=utf-8"]];

/** `POST …/generate` (http.md §10). */
export async function postGenerate(
  context: HttpContext,
  request: HttpRequest,
  path: PathParts,
): Promise<HttpResponse> {
  const body = [await generate(context, request, path)];
  return { status: 200, headers: JSON_HEADERS, body };
}

/** `POST …/generate_stream`: the response as a server-sent event. */
export async function postGenerateStream(
  context: HttpContext,
  request: HttpRequest,
  path: PathParts,
): Promise<HttpResponse> {
  const json = await generate(context, request, path);
  const encoder = new TextEncoder();
  const body = [encoder.encode("data: "), json, encoder.encode("\n\n")];
  return { status: 200, headers: EVENT_HEADERS, body };
}

async function generate(
  { api, options, codec }: HttpContext,
  request: HttpRequest,
  { model, version }: PathParts,
): Promise<Uint8Array> {
  const { inputs } = api.modelMetadata(model, version);
  const encoding = request.headers.get("content-encoding")?.trim().toLowerCase() ?? "";
  if (encoding !== "" && encoding !== "identity") {
    throw new ServerError(
      "INVALID_ARG",
      "Unsupported content-encoding, only 'identity' is supported.",
    );
  }
  const decoded = decodeGenerateRequest(request.body, {
    modelName: model,
    modelVersion: version,
    inputs,
    maxInputBytes: options.maxInputBytes,
  });
  const response = await api.infer(decoded, { signal: request.signal });
  try {
    return encodeGenerateResponse(response, codec.writer);
  } finally {
    api.releaseResponse(response);
  }
}
