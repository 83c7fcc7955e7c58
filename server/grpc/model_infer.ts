import type { InferenceApi, RequestTrace, ResponseReceiver } from "../core/inference_api.ts";
import {
  decodeInferRequest,
  type InferMessage,
  parseInferMessage,
} from "../../proto/grpc_codec.ts";
import { type EncodedMessage, encodeInferResponse } from "../../proto/grpc_codec_response.ts";
import type { CancelSignal, InferRequest, InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { forwardedHeaders, type Metadata } from "./grpc_options.ts";
import type { RpcCall } from "./rpc_call.ts";

/** The answer to inference requests that come during shutdown. */
export function shuttingDown(): ServerError {
  return new ServerError(
    "UNAVAILABLE",
    "GRPC server is shutting down and has stopped accepting new requests.",
  );
}

/** What belongs to a request besides its message. */
export interface InferCallOptions {
  readonly forwarded: readonly (readonly [string, string])[];
  readonly signal: CancelSignal;
  readonly trace?: RequestTrace | undefined;
  readonly takesFirst?: boolean;
}

/** Begins the trace of a request whose message just came, if it is to be traced. */
export function startTrace(
  api: InferenceApi,
  { modelName: name, modelVersion: version }: InferMessage,
  { metadata, waitingSinceMs }: { metadata: Metadata; waitingSinceMs: number },
): RequestTrace | undefined {
  const trace = api.startTrace({ name, version }, metadata);
  if (trace === undefined) return undefined;
  // 0 when nothing was traced yet as the wait began.
  trace.mark("GRPC_WAITREAD_START", waitingSinceMs === 0 ? undefined : waitingSinceMs);
  trace.mark("GRPC_WAITREAD_END");
  return trace;
}

/**
 * Checks a parsed message and runs it. What is wrong with the model comes before what is wrong with the fields.
 * @throws ServerError when the request is refused before it reaches the core, else rejects.
 */
export function startInfer(
  api: InferenceApi,
  message: InferMessage,
  options: InferCallOptions,
): Promise<InferResponse> {
  return api.infer(decodeMessage(api, message, options), options);
}

/** The same for a request with any number of responses. */
export function startInferStream(
  api: InferenceApi,
  message: InferMessage,
  { receive, ...options }: InferCallOptions & { readonly receive: ResponseReceiver },
): Promise<void> {
  return api.inferStream(decodeMessage(api, message, options), receive, options);
}

function decodeMessage(
  api: InferenceApi,
  message: InferMessage,
  { forwarded }: InferCallOptions,
): InferRequest {
  if (api.isExiting()) throw shuttingDown();
  try {
    return decodeInferRequest(message, forwarded);
  } catch (reason) {
    // What is wrong with the model goes first.
    api.modelMetadata(message.modelName, message.modelVersion);
    throw reason;
  }
}

/** What to tell a client whose ModelInfer call failed: of decoupled models only that they cannot be called so. */
export function unaryFailure(
  api: InferenceApi,
  { modelName, modelVersion }: InferMessage,
  reason: unknown,
): unknown {
  if (reason instanceof ServerError && reason.code === "NOT_FOUND") return reason;
  try {
    if (!api.isDecoupled(modelName, modelVersion)) return reason;
  } catch {
    return reason;
  }
  return new ServerError(
    "UNSUPPORTED",
    "ModelInfer RPC doesn't support models with decoupled transaction policy",
  );
}

/** Runs one message of a ModelInfer call; `release` is called when no byte of it is needed any more. */
export function serveModelInfer(call: RpcCall, message: Uint8Array, release: () => void): void {
  const { api, options } = call.context;
  call.enableCompression();
  let parsed: InferMessage | undefined;
  let trace: RequestTrace | undefined;
  const fail = (reason: unknown) => {
    const failure = parsed === undefined ? reason : unaryFailure(api, parsed, reason);
    release();
    if (!call.ended) trace?.mark("GRPC_SEND_START");
    call.fail(failure);
    trace?.end();
  };
  try {
    parsed = parseInferMessage(message);
    const { headers } = call.stream;
    if (call.openedMs !== 0 || api.traceTime() !== 0) {
      trace = startTrace(api, parsed, { metadata: headers, waitingSinceMs: call.openedMs });
    }
    const forwarded = forwardedHeaders(options.headerForwardPattern, headers);
    startInfer(api, parsed, { forwarded, signal: call.signal, trace })
      .then((response) => respond(call, response, { release, trace }), fail);
  } catch (reason) {
    fail(reason);
  }
}

/** Outputs may be views into the request: its buffer stays until the answer is written. */
function respond(
  call: RpcCall,
  response: InferResponse,
  { release, trace }: { release: () => void; trace: RequestTrace | undefined },
): void {
  const { api } = call.context;
  const wasEnded = call.ended;
  const done = () => {
    api.releaseResponse(response);
    release();
    if (trace === undefined) return;
    if (!wasEnded) trace.mark("GRPC_SEND_END");
    trace.end();
  };
  if (!wasEnded) trace?.mark("GRPC_SEND_START");
  let encoded: EncodedMessage;
  try {
    encoded = encodeInferResponse(response, { stream: false });
  } catch (reason) {
    done();
    call.fail(reason);
    return;
  }
  call.send(encoded, done);
  call.finish();
}
