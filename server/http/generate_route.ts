import type { InferRequest, InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import type { RequestTrace, StreamedResponse } from "../core/inference_api.ts";
import { Cancellation } from "../transport/cancellation.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import { errorResponse, httpStatus } from "./error_response.ts";
import type { HttpContext, PathParts } from "./http_context.ts";
import { formatJson, type HeaderFields, JSON_HEADERS, jsonResponse } from "./json_response.ts";
import { StreamedBody } from "./streamed_body.ts";
import { startTrace, traceAnswer } from "./trace_call.ts";

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
  const trace = startTrace(context, request, path);
  if (trace === undefined) return generate(context, request, { path, trace });
  return traceAnswer(trace, request, () => generate(context, request, { path, trace }));
}

/** Where a request goes, and its trace if it has one. */
interface GenerateCall {
  readonly path: PathParts;
  readonly trace: RequestTrace | undefined;
}

async function generate(
  context: HttpContext,
  request: HttpRequest,
  { path, trace }: GenerateCall,
): Promise<HttpResponse> {
  const decoding = decode(context, request, path);
  const decoded = decoding instanceof Promise ? await decoding : decoding;
  const cancellation = follow(request);
  const { promise, resolve, reject } = Promise.withResolvers<HttpResponse>();
  cancellation.addEventListener("abort", () => reject(gone()));
  let first: Promise<HttpResponse> | HttpResponse | undefined;
  let count = 0;
  const answerWrongCount = async () => {
    // The status is that of the first response.
    const { status } = await first ?? { status: 200 };
    resolve(jsonResponse({ error: NOT_ONE_RESPONSE }, { status }));
    // Nobody will get what else the model makes of it.
    cancellation.abort();
  };
  const receive = (message: StreamedResponse): undefined => {
    const { response, error } = message;
    if (response === undefined && error === undefined) return;
    if (++count === 1) {
      first = encodeAnswer(context, message);
      return;
    }
    if (response !== undefined) context.api.releaseResponse(response);
    if (count === 2) void answerWrongCount();
  };
  context.api.inferStream(decoded, receive, { signal: cancellation, trace }).then(
    () => count === 1 ? resolve(first!) : answerWrongCount(),
    reject,
  );
  return await promise;
}

/** Never rejects. */
function encodeAnswer(
  context: HttpContext,
  { response, error }: StreamedResponse,
): Promise<HttpResponse> | HttpResponse {
  if (response === undefined) return errorResponse(error);
  return encode<HttpResponse>(context, response, {
    answer: (json) => ({ status: 200, headers: JSON_HEADERS, body: [json] }),
    fail: errorResponse,
  });
}

/** Encodes a response, at once if it is short, gives it back, and makes an answer of the JSON or of the failure. */
function encode<Answer>(
  { api, codec }: HttpContext,
  response: InferResponse,
  { answer, fail }: { answer: (json: Uint8Array) => Answer; fail: (reason: unknown) => Answer },
): Answer | Promise<Answer> {
  let json: Uint8Array | Promise<Uint8Array>;
  try {
    json = codec.encodeGenerate(response);
  } catch (reason) {
    api.releaseResponse(response);
    return fail(reason);
  }
  if (json instanceof Promise) {
    return json.finally(() => api.releaseResponse(response)).then(answer, fail);
  }
  api.releaseResponse(response);
  return answer(json);
}

/** `POST …/generate_stream`: every response as a server-sent event; the first one decides the status. */
export function postGenerateStream(
  context: HttpContext,
  request: HttpRequest,
  path: PathParts,
): Promise<HttpResponse> {
  const trace = startTrace(context, request, path);
  if (trace === undefined) return generateStream(context, request, { path, trace });
  return traceAnswer(trace, request, () => generateStream(context, request, { path, trace }));
}

async function generateStream(
  context: HttpContext,
  request: HttpRequest,
  { path, trace }: GenerateCall,
): Promise<HttpResponse> {
  const decoding = decode(context, request, path);
  const decoded = decoding instanceof Promise ? await decoding : decoding;
  const cancellation = follow(request);
  const events = new EventWriter(context, () => cancellation.abort());
  cancellation.addEventListener("abort", () => events.giveUp());
  const receive = (message: StreamedResponse) => events.write(message);
  context.api.inferStream(decoded, receive, { signal: cancellation, trace }).then(
    () => events.end(),
    (reason) => events.fail(ServerError.from(reason)),
  );
  return { status: await events.status, headers: EVENT_HEADERS, body: events.body };
}

interface ServerSentEvent {
  readonly status: number;
  readonly bytes: Uint8Array;
}

/** Writes responses as events, in order although to encode a large one takes a while. */
class EventWriter {
  readonly body: StreamedBody;
  readonly #context: HttpContext;
  readonly #status = Promise.withResolvers<number>();
  /** Settles when everything before was written. */
  #turn: Promise<void> | undefined;

  constructor(context: HttpContext, onGone: () => void) {
    this.#context = context;
    this.body = new StreamedBody(onGone);
  }

  /** That of the first event; rejects when there is to be an error without events. */
  get status(): Promise<number> {
    return this.#status.promise;
  }

  write(message: StreamedResponse): Promise<void> | undefined {
    const { response, error } = message;
    if (response === undefined && error === undefined) return undefined;
    const event = response === undefined ? errorEvent(error) : encode(this.#context, response, {
      answer: (json) => ({ status: 200, bytes: formatEvent(json) }),
      fail: errorEvent,
    });
    if (this.#turn === undefined && !(event instanceof Promise)) return this.#put(event);
    const turn = (this.#turn ?? Promise.resolve()).then(() => event)
      .then((encoded) => this.#put(encoded));
    this.#turn = turn;
    turn.then(() => {
      if (this.#turn === turn) this.#turn = undefined;
    });
    return turn;
  }

  #put({ status, bytes }: ServerSentEvent): Promise<void> | undefined {
    this.#status.resolve(status);
    return this.body.write(bytes);
  }

  /** The model is done. */
  end(): void {
    if (this.#turn !== undefined) {
      this.#turn.then(() => this.end());
      return;
    }
    this.#status.resolve(200);
    this.body.end();
  }

  /** The request failed before the model answered. */
  fail(error: ServerError): void {
    // What no model ever had is answered like any other refused request.
    if (error.isRefusal) return this.#status.reject(error);
    void this.write({ error, isFinal: true });
    this.end();
  }

  /** The client has gone. */
  giveUp(): void {
    this.body.giveUp();
    this.#status.resolve(httpStatus(gone()));
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
  { api, options, codec }: HttpContext,
  request: HttpRequest,
  { model, version }: PathParts,
): InferRequest | Promise<InferRequest> {
  const { inputs } = api.modelMetadata(model, version);
  const encoding = request.headers.get("content-encoding")?.trim().toLowerCase() ?? "";
  if (encoding !== "" && encoding !== "identity") {
    throw new ServerError(
      "INVALID_ARG",
      "Unsupported content-encoding, only 'identity' is supported.",
    );
  }
  return codec.decodeGenerate(request.body, {
    modelName: model,
    modelVersion: version,
    inputs,
    maxInputBytes: options.maxInputBytes,
  });
}
