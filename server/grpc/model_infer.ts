import type { InferenceApi } from "../core/inference_api.ts";
import {
  decodeInferRequest,
  type InferMessage,
  parseInferMessage,
} from "../../proto/grpc_codec.ts";
import { type EncodedMessage, encodeInferResponse } from "../../proto/grpc_codec_response.ts";
import type { CancelSignal, InferRequest, InferResponse } from "../../proto/infer.ts";
import { ServerError } from "../../proto/status.ts";
import { forwardedHeaders } from "./grpc_options.ts";
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
  if (api.isExiting()) throw shuttingDown();
  let request: InferRequest;
  try {
    request = decodeInferRequest(message, options.forwarded);
  } catch (reason) {
    checkModel(api, message);
    throw reason;
  }
  return api.infer(request, { signal: options.signal });
}

function checkModel(api: InferenceApi, message: InferMessage): void {
  const { decoupled } = api.modelMetadata(message.modelName, message.modelVersion);
  if (!decoupled) return;
  throw new ServerError(
    "UNSUPPORTED",
    "ModelInfer RPC doesn't support models with decoupled transaction policy",
  );
}

/** Runs one message of a ModelInfer call; `release` is called when no byte of it is needed any more. */
export function serveModelInfer(call: RpcCall, message: Uint8Array, release: () => void): void {
  const { api, options } = call.context;
  call.enableCompression();
  try {
    startInfer(api, parseInferMessage(message), {
      forwarded: forwardedHeaders(options.headerForwardPattern, call.stream.headers),
      signal: call.signal,
    }).then(
      (response) => respond(call, response, release),
      (reason) => {
        release();
        call.fail(reason);
      },
    );
  } catch (reason) {
    release();
    call.fail(reason);
  }
}

/** Outputs may be views into the request: its buffer stays until the answer is written. */
function respond(call: RpcCall, response: InferResponse, release: () => void): void {
  const { api } = call.context;
  const done = () => {
    api.releaseResponse(response);
    release();
  };
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
