import { decodeGenerateRequest, encodeGenerateResponse } from "../../proto/http_codec_generate.ts";
import type { InferRequest } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type { StreamedResponse } from "../core/inference_api.ts";
import { Cancellation } from "../transport/cancellation.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import { errorResponse, httpStatus } from "./error_response.ts";
import type { HttpContext, PathParts } from "./http_context.ts";
import { formatJson, type HeaderFields, JSON_HEADERS, jsonResponse } from "./json_response.ts";
import { StreamedBody } from "./streamed_body.ts";

const EVENT_HEADERS: HeaderFields = [["content-type", "text/event-stream; charset=utf-8"]];

const NOT_ONE_RESPONSE =
  "generate expects model to produce exactly 1 response, use generate stream for model that " +
  "generates various number of responses";

/** `POST …/generate` (http.md §10): the one response of the model. */
export function postGenerate(
  context: HttpContext,
  request: HttpRequest,
  path: PathParts,
): Promise<HttpResponse> {
  const decoded = decode(context, request, path);
  const cancellation = follow(request);
  return new Promise((resolve, reject) => {
    let first: HttpResponse | undefined;
    cancellation.addEventListener("abort", () => reject(gone()));
    const answerWrongCount = () =>
      // The status is that of the first response.
      resolve(jsonResponse({ error: NOT_ONE_RESPONSE }, { status: first?.status ?? 200 }));
    const receive = (message: StreamedResponse): undefined => {
      const answer = encodeAnswer(context, message);
      if (answer === undefined) return;
      if (first === undefined) {
        first = answer;
        return;
      }
      answerWrongCount();
      // Nobody will get what else the model makes of it.
      cancellation.abort();
    };
    context.api.inferStream(decoded, receive, { signal: cancellation }).then(
      () => first === undefined ? answerWrongCount() : resolve(first),
      reject,
    );
  });
}

function encodeAnswer(
  { api, codec }: HttpContext,
  { response, error }: StreamedResponse,
): HttpResponse | undefined {
  if (error !== undefined) return errorResponse(error);
  if (response === undefined) return undefined;
  try {
    const body = [encodeGenerateResponse(response, codec.writer)];
    return { status: 200, headers: JSON_HEADERS, body };
  } catch (reason) {
    return errorResponse(reason);
  } finally {
    api.releaseResponse(response);
  }
}

/** `POST …/generate_stream`: every response as a server-sent event; the first one decides the status. */
export async function postGenerateStream(
  context: HttpContext,
  request: HttpRequest,
  path: PathParts,
): Promise<HttpResponse> {
  const decoded = decode(context, request, path);
  const cancellation = follow(request);
  const body = new StreamedBody(() => cancellation.abort());
  const status = Promise.withResolvers<number>();
  cancellation.addEventListener("abort", () => {
    body.giveUp();
    status.resolve(httpStatus(gone()));
  });
  const receive = (message: StreamedResponse): Promise<void> | undefined => {
    const event = encodeEvent(context, message);
    if (event === undefined) return undefined;
    status.resolve(event.status);
    return body.write(event.bytes);
  };
  context.api.inferStream(decoded, receive, { signal: cancellation }).then(
    () => {
      status.resolve(200);
      body.end();
    },
    (reason) => {
      const error = ServerError.from(reason);
      // What no model ever had is answered like any other refused request.
      if (error.isRefusal) return status.reject(error);
      const event = errorEvent(error);
      status.resolve(event.status);
      void body.write(event.bytes);
      body.end();
    },
  );
  return { status: await status.promise, headers: EVENT_HEADERS, body };
}

interface ServerSentEvent {
  readonly status: number;
  readonly bytes: Uint8Array;
}

function encodeEvent(
  { api, codec }: HttpContext,
  { response, error }: StreamedResponse,
): ServerSentEvent | undefined {
  if (error !== undefined) return errorEvent(error);
  if (response === undefined) return undefined;
  try {
    return { status: 200, bytes: formatEvent(encodeGenerateResponse(response, codec.writer)) };
  } catch (reason) {
    return errorEvent(reason);
  } finally {
    api.releaseResponse(response);
  }
}

function errorEvent(reason: unknown): ServerSentEvent {
  const error = ServerError.from(reason);
  const json = new TextEncoder().encode(formatJson({ error: error.message }));
  return { status: httpStatus(error), bytes: formatEvent(json) };
}

/** `data: <json>`, and the empty line that ends an event. */
function formatEvent(json: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(EVENT_START.length + json.length + 2);
  bytes.set(EVENT_START);
  bytes.set(json, EVENT_START.length);
  bytes.fill(0x0a, -2);
  return bytes;
}

const EVENT_START = Uint8Array.from("data: ", (character) => character.charCodeAt(0));

/** The answer that nobody waits for, so that the transport need not wait for the model. */
function gone(): ServerError {
  return new ServerError("CANCELLED", "");
}

/** Aborted with the request, or before. */
function follow({ signal }: HttpRequest): Cancellation {
  const cancellation = new Cancellation();
  if (signal.aborted) cancellation.abort();
  else signal.addEventListener("abort", () => cancellation.abort());
  return cancellation;
}

/** @throws ServerError when the model is not there, or the body is no request for it. */
function decode(
  { api, options }: HttpContext,
  request: HttpRequest,
  { model, version }: PathParts,
): InferRequest {
  const { inputs } = api.modelMetadata(model, version);
  const encoding = request.headers.get("content-encoding")?.trim().toLowerCase() ?? "";
  if (encoding !== "" && encoding !== "identity") {
    throw new ServerError(
      "INVALID_ARG",
      "Unsupported content-encoding, only 'identity' is supported.",
    );
  }
  return decodeGenerateRequest(request.body, {
    modelName: model,
    modelVersion: version,
    inputs,
    maxInputBytes: options.maxInputBytes,
  });
}
