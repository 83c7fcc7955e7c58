import { fromBinary, toBinary } from "@bufbuild/protobuf";
import type { HandlerContext } from "@connectrpc/connect";
import {
  type ModelInferRequest,
  ModelInferRequestSchema,
  type ModelInferResponse,
  ModelInferResponseSchema,
  type ModelStreamInferResponse,
  ModelStreamInferResponseSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import type { InferMessage } from "../../proto/grpc_codec.ts";
import { type EncodedMessage, encodeInferResponse } from "../../proto/grpc_codec_response.ts";
import type { InferenceApi } from "../core/inference_api.ts";
import { AsyncQueue } from "./async_queue.ts";
import { forwardedHeaders, type GrpcOptions } from "./grpc_options.ts";
import { joinParts } from "../../proto/join_parts.ts";
import { PREFIX_BYTES } from "./message_frame.ts";
import type { InferResponse } from "../../proto/infer.ts";
import { startInfer, startTrace, unaryFailure } from "./model_infer.ts";
import { StreamInfer } from "./stream_infer.ts";

function bytesOf(encoded: EncodedMessage): Uint8Array {
  return joinParts(encoded.parts).subarray(PREFIX_BYTES);
}

/** Runs one request that came through Connect, by way of the same codec as gRPC. */
export async function inferForConnect(
  api: InferenceApi,
  options: GrpcOptions,
  { message, context }: { message: InferMessage; context: HandlerContext },
): Promise<ModelInferResponse> {
  const metadata = context.requestHeader;
  const trace = startTrace(api, message, { metadata, waitingSinceMs: 0 });
  let response: InferResponse;
  try {
    response = await startInfer(api, message, {
      forwarded: forwardedHeaders(options.headerForwardPattern, metadata),
      signal: context.signal,
      trace,
    });
  } catch (reason) {
    trace?.end();
    throw unaryFailure(api, message, reason);
  }
  try {
    trace?.mark("GRPC_SEND_START");
    const encoded = encodeInferResponse(response, { stream: false });
    return fromBinary(ModelInferResponseSchema, bytesOf(encoded));
  } finally {
    api.releaseResponse(response);
    // What is written to the client is out of sight here.
    trace?.end();
  }
}

/** One message to the client, and what to call when it was taken. */
interface Outgoing {
  readonly response: ModelStreamInferResponse;
  readonly onSent: () => void;
}

/** Runs a stream that came through Connect. */
export async function* streamInferForConnect(
  api: InferenceApi,
  options: GrpcOptions,
  { requests, context }: { requests: AsyncIterable<ModelInferRequest>; context: HandlerContext },
): AsyncGenerator<ModelStreamInferResponse> {
  const outgoing = new AsyncQueue<Outgoing>();
  const controller = new AbortController();
  const abort = () => {
    controller.abort();
    infer.cancel();
    outgoing.end(context.signal.reason);
  };
  let resume: (() => void) | undefined;
  let held: Promise<void> | undefined;
  const infer = new StreamInfer(api, {
    forwarded: forwardedHeaders(options.headerForwardPattern, context.requestHeader),
    signal: controller.signal,
    metadata: context.requestHeader,
    errorAsStatus: context.requestHeader.get("triton_grpc_error") === "true",
    maxRequests: options.maxStreamRequests,
    maxBytes: options.maxStreamBytes,
  }, {
    send: (encoded, onSent) =>
      outgoing.push({
        response: fromBinary(ModelStreamInferResponseSchema, bytesOf(encoded)),
        onSent,
      }),
    finish(reason) {
      outgoing.end(reason);
      // A failure cancels what still runs, however long the client takes to read what was before it.
      if (reason !== undefined) controller.abort();
    },
    pause: () => held = new Promise((resolve) => resume = resolve),
    resume: () => {
      held = undefined;
      resume?.();
    },
  });
  const feed = async () => {
    for await (const request of requests) {
      await held;
      infer.accept(toBinary(ModelInferRequestSchema, request), () => {});
    }
    infer.end();
  };
  context.signal.addEventListener("abort", abort);
  feed().catch((reason) => {
    infer.cancel();
    outgoing.end(reason);
  });
  try {
    for await (const { response, onSent } of outgoing) {
      onSent();
      yield response;
    }
  } finally {
    context.signal.removeEventListener("abort", abort);
    abort();
    resume?.();
    for (const { onSent } of outgoing.drain()) onSent();
  }
}
