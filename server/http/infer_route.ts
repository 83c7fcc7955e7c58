import type { DecodedInfer, InferTarget } from "../../proto/http_codec.ts";
import { forwardHeaders } from "../../proto/http_codec_parameters.ts";
import { decodeRawInferRequest } from "../../proto/http_codec_raw.ts";
import type { EncodedResponse } from "../../proto/http_codec_response.ts";
import type { InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type { RequestTrace } from "../core/inference_api.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import { chooseContentCoding, parseContentEncoding } from "./content_encoding.ts";
import { errorResponse } from "./error_response.ts";
import type { HttpContext, PathParts } from "./http_context.ts";
import { type HeaderFields, JSON_HEADERS } from "./json_response.ts";
import { startTrace, traceAnswer } from "./trace_call.ts";

const HEADER_LENGTH = "Inference-Header-Content-Length";

/** `POST /v2/models/M[/versions/V]/infer` (http.md §9). */
export function postInfer(
  context: HttpContext,
  request: HttpRequest,
  path: PathParts,
): HttpResponse | Promise<HttpResponse> {
  const trace = startTrace(context, request, path);
  if (trace === undefined) return infer(context, request, { path, trace });
  return traceAnswer(trace, request, () => infer(context, request, { path, trace }));
}

/** Where a request goes, and its trace if it has one. */
interface InferCall {
  readonly path: PathParts;
  readonly trace: RequestTrace | undefined;
}

function infer(
  context: HttpContext,
  request: HttpRequest,
  { path, trace }: InferCall,
): Promise<HttpResponse> {
  const encoding = request.headers.get("content-encoding");
  const { body } = request;
  if (encoding === undefined) return inferBody(context, request, { path, trace, body });
  return inferEncoded(context, request, { path, trace, encoding });
}

async function inferEncoded(
  context: HttpContext,
  request: HttpRequest,
  { path, trace, encoding }: InferCall & { encoding: string },
): Promise<HttpResponse> {
  let body = request.body;
  try {
    if (parseContentEncoding(encoding) !== undefined) {
      checkModel(context, path);
      body = await context.codec.inflate(body, context.options.maxInputBytes);
    }
  } catch (reason) {
    return errorResponse(reason, acceptedEncodings(reason));
  }
  return inferBody(context, request, { path, trace, body });
}

/** Tells which codings are understood when the one of the request is not. */
function acceptedEncodings(reason: unknown): HeaderFields {
  const isCoding = reason instanceof ServerError && reason.message.startsWith("Unsupported");
  return isCoding ? [["Accept-Encoding", "gzip, deflate"]] : [];
}

async function inferBody(
  context: HttpContext,
  request: HttpRequest,
  { path, trace, body }: InferCall & { body: Uint8Array },
): Promise<HttpResponse> {
  let decoded: DecodedInfer;
  try {
    const decoding = decode(context, request, { path, body });
    decoded = decoding instanceof Promise ? await decoding : decoding;
    forward(context, request, decoded);
  } catch (reason) {
    // A model that is not there goes before whatever is wrong with the body.
    checkModel(context, path);
    throw reason;
  }
  let response: InferResponse;
  try {
    response = await context.api.infer(decoded.request, { signal: request.signal, trace });
  } catch (reason) {
    if (reason instanceof ServerError && reason.code === "UNSUPPORTED") checkModel(context, path);
    throw reason;
  }
  let encoded: EncodedResponse;
  try {
    const encoding = context.codec.encode(response, decoded);
    encoded = encoding instanceof Promise ? await encoding : encoding;
  } catch (reason) {
    context.api.releaseResponse(response);
    throw reason;
  }
  const acceptEncoding = request.headers.get("accept-encoding");
  const coding = acceptEncoding === undefined ? undefined : chooseContentCoding(acceptEncoding);
  if (coding === undefined) return plainResponse(context, response, encoded);
  try {
    return {
      status: 200,
      headers: [...responseHeaders(encoded), ["Content-Encoding", coding]],
      body: [await context.codec.deflate(encoded.parts, coding)],
    };
  } finally {
    context.api.releaseResponse(response);
  }
}

/** @throws ServerError when the model is not there, or cannot be used by this endpoint. */
function checkModel({ api }: HttpContext, { model, version }: PathParts): void {
  if (api.modelMetadata(model, version).decoupled) {
    throw new ServerError(
      "UNSUPPORTED",
      "HTTP end point doesn't support models with decoupled transaction policy",
    );
  }
}

function decode(
  { api, options, codec }: HttpContext,
  { headers }: HttpRequest,
  { path, body }: { path: PathParts; body: Uint8Array },
): DecodedInfer | Promise<DecodedInfer> {
  const headerLength = parseHeaderLength(headers.get("inference-header-content-length"), body);
  const target: InferTarget = {
    modelName: path.model,
    modelVersion: path.version,
    headerLength,
    maxInputBytes: options.maxInputBytes,
  };
  return headerLength === 0
    ? decodeRawInferRequest(body, api.modelMetadata(path.model, path.version), target)
    : codec.decode(body, target);
}

function forward(
  { options: { headerForwardPattern } }: HttpContext,
  { headers }: HttpRequest,
  { request }: DecodedInfer,
): void {
  if (headerForwardPattern === undefined) return;
  forwardHeaders(headers.entries(), headerForwardPattern, request.parameters);
}

/** Length of the JSON; undefined = the whole body (http.md §9.2). */
function parseHeaderLength(text: string | undefined, body: Uint8Array): number | undefined {
  if (text === undefined) return undefined;
  const length = Number(text);
  if (!Number.isInteger(length) || !/^-?\d+$/.test(text)) {
    throw new ServerError("INVALID_ARG", `Unable to parse ${HEADER_LENGTH}, got: ${text}`);
  }
  if (length < 0 || length > body.length) {
    throw new ServerError(
      "INVALID_ARG",
      `inference header size should be in range (0, ${body.length}), got: ${text}`,
    );
  }
  return length;
}

function plainResponse(
  { api }: HttpContext,
  response: InferResponse,
  encoded: EncodedResponse,
): HttpResponse {
  const headers = responseHeaders(encoded);
  if (encoded.headerLength === undefined) {
    // Nothing of the outputs is left in the body.
    api.releaseResponse(response);
    return { status: 200, headers, body: encoded.parts };
  }
  return { status: 200, headers, body: encoded.parts, onSent: () => api.releaseResponse(response) };
}

function responseHeaders({ headerLength }: EncodedResponse): HeaderFields {
  if (headerLength === undefined) return JSON_HEADERS;
  return [["content-type", "application/octet-stream"], [HEADER_LENGTH, String(headerLength)]];
}
