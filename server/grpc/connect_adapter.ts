import { type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import {
  type ConnectRouter,
  createConnectRouter,
  type HandlerContext,
  type ServiceImpl,
} from "@connectrpc/connect";
import type { Compression, UniversalHandler } from "@connectrpc/connect/protocol";
import { GRPCInferenceService, ModelInferRequestSchema } from "../../proto/gen/grpc_service_pb.ts";
import { Health, type HealthCheckResponseSchema } from "../../proto/gen/health_pb.ts";
import { parseInferMessage } from "../../proto/grpc_codec.ts";
import type { InferenceApi } from "../core/inference_api.ts";
import type { ApiCategory } from "../core/options_frontend.ts";
import { toAbortSignal } from "../transport/cancellation.ts";
import type { HttpRequest, HttpResponse, RequestHead } from "../transport/transport.ts";
import { AsyncQueue } from "./async_queue.ts";
import { inferForConnect, streamInferForConnect } from "./connect_infer.ts";
import { checkRestriction, type GrpcOptions } from "./grpc_options.ts";
import { toConnectError } from "./grpc_status.ts";
import { createHealthService, HealthWatch } from "./health_service.ts";
import { createInferenceService, METHOD_CATEGORIES } from "./inference_service.ts";
import { MessageCompression, type MessageEncoding } from "./message_compression.ts";
import { StateWatch } from "./state_watch.ts";

/** Serves requests of the Connect family. */
export interface ConnectHandler {
  /** True for paths of the services, whatever the method or content type. */
  matches(head: RequestHead): boolean;
  /** The answer to a request that needs no body to be refused. */
  admit(head: RequestHead): HttpResponse | undefined;
  handle(request: HttpRequest): Promise<HttpResponse>;
}

/** Largest message over these protocols: JSON is parsed as a whole, and everything is copied on the way. */
export const MAX_CONNECT_MESSAGE_BYTES = 64 * 1024 * 1024;

/** Largest request body: several messages of a stream, each within its own bound. */
export const MAX_CONNECT_BODY_BYTES = 4 * MAX_CONNECT_MESSAGE_BYTES;

const NOT_FOUND: HttpResponse = Object.freeze({ status: 404 });
const TOO_LARGE: HttpResponse = {
  status: 413,
  headers: [["content-type", "application/json"]],
  body: [
    new TextEncoder().encode(
      JSON.stringify({
        code: "resource_exhausted",
        message: `Request body is larger than the ${MAX_CONNECT_BODY_BYTES} bytes allowed`,
      }),
    ),
  ],
};

// Connect compresses answers above a size that it is given; nothing is as large as this.
const NEVER_BYTES = 0xffffffff;
const PATH = /^\/(?:inference\.GRPCInferenceService|grpc\.health\.v1\.Health)\//;

/** gRPC-Web, Connect and JSON on the same service object as gRPC, for HTTP/1.1 and HTTP/2 requests. */
export function createConnectHandler(api: InferenceApi, options: GrpcOptions): ConnectHandler {
  const handlers = connectHandlers(api, options);
  const handlerOf = ({ target }: RequestHead) => handlers.get(target.split("?", 1)[0]!);
  return {
    matches: (head) => PATH.test(head.target),
    admit(head) {
      if (handlerOf(head) === undefined) return NOT_FOUND;
      const byteSize = Number(head.headers.get("content-length") ?? 0);
      return byteSize > MAX_CONNECT_BODY_BYTES ? TOO_LARGE : undefined;
    },
    async handle(request) {
      const handler = handlerOf(request);
      if (handler === undefined) return NOT_FOUND;
      if (request.body.length > MAX_CONNECT_BODY_BYTES) return TOO_LARGE;
      return await respond(handler, request);
    },
  };
}

async function respond(handler: UniversalHandler, request: HttpRequest): Promise<HttpResponse> {
  const header = new Headers();
  for (const [name, value] of request.headers.entries()) {
    if (!name.startsWith(":")) header.append(name, value);
  }
  const answer = await handler({
    // Connect refuses bidirectional streams over HTTP/1.1, because they cannot take turns there. Ours have their
    // whole request already, so they work over every version.
    httpVersion: "2.0",
    method: request.method,
    url: `http://${request.headers.get("host") ?? "localhost"}${request.target}`,
    header,
    body: oneChunk(request.body),
    signal: toAbortSignal(request.signal),
  });
  const isUnary = handler.method.methodKind === "unary";
  const body = answer.body === undefined || !isUnary ? answer.body : await collect(answer.body);
  return {
    status: answer.status,
    headers: fieldsOf(answer.header).filter(([name]) => name !== "content-length"),
    ...(body === undefined ? {} : { body }),
    ...(answer.trailer === undefined ? {} : { trailers: fieldsOf(answer.trailer) }),
  };
}

async function* oneChunk(body: Uint8Array): AsyncGenerator<Uint8Array> {
  await Promise.resolve();
  if (body.length > 0) yield body;
}

async function collect(body: AsyncIterable<Uint8Array>): Promise<Uint8Array[]> {
  const parts: Uint8Array[] = [];
  for await (const part of body) parts.push(part);
  return parts;
}

function fieldsOf(headers: Headers | undefined): [string, string][] {
  return headers === undefined ? [] : [...headers];
}

function connectHandlers(
  api: InferenceApi,
  options: GrpcOptions,
): ReadonlyMap<string, UniversalHandler> {
  const maxMessageBytes = Math.min(options.maxMessageBytes, MAX_CONNECT_MESSAGE_BYTES);
  const compression = new MessageCompression({ ...options, maxMessageBytes });
  const isCompressing = options.responseCompressionLevel !== "none";
  const router = createConnectRouter({
    grpc: false,
    acceptCompression: [
      connectCompression("gzip", compression, options),
      connectCompression("deflate", compression, options),
    ],
    compressMinBytes: isCompressing ? 1024 : NEVER_BYTES,
    readMaxBytes: maxMessageBytes,
  });
  addServices(router, api, options);
  return new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
}

function connectCompression(
  name: MessageEncoding,
  compression: MessageCompression,
  options: GrpcOptions,
): Compression {
  const level = options.responseCompressionLevel;
  return {
    name,
    compress: async (bytes) => {
      const parts = await compression.deflate(name, level === "none" ? "low" : level, [bytes]);
      return await new Blob(parts as Uint8Array<ArrayBuffer>[]).bytes();
    },
    decompress: async (bytes) => {
      const { message, release } = await compression.inflate(name, bytes, () => {});
      release();
      return message as Uint8Array<ArrayBuffer>;
    },
  };
}

function addServices(router: ConnectRouter, api: InferenceApi, options: GrpcOptions): void {
  const guard = (category: ApiCategory, context: HandlerContext) =>
    checkRestriction(options.restrictedProtocols, category, context.requestHeader);
  const wrap = (category: ApiCategory, call: (request: never) => unknown) =>
  async (
    request: never,
    context: HandlerContext,
  ) => {
    try {
      guard(category, context);
      return await call(request);
    } catch (reason) {
      throw toConnectError(reason);
    }
  };
  const inference: Record<string, unknown> = {};
  for (const [name, call] of Object.entries(createInferenceService(api, options))) {
    inference[name] = wrap(METHOD_CATEGORIES[name as keyof typeof METHOD_CATEGORIES], call);
  }
  const streaming: Partial<ServiceImpl<typeof GRPCInferenceService>> = {
    async modelInfer(request, context) {
      try {
        guard("inference", context);
        const message = parseInferMessage(toBinary(ModelInferRequestSchema, request));
        return await inferForConnect(api, options, { message, context });
      } catch (reason) {
        throw context.signal.aborted ? abortReason(context, reason) : toConnectError(reason);
      }
    },
    async *modelStreamInfer(requests, context) {
      try {
        guard("inference", context);
        yield* streamInferForConnect(api, options, { requests, context });
      } catch (reason) {
        throw context.signal.aborted ? abortReason(context, reason) : toConnectError(reason);
      }
    },
  };
  router.service(GRPCInferenceService, { ...inference, ...streaming });
  const health = createHealthService(api);
  const watch = new HealthWatch(api, new StateWatch(api, options.setTimer), options.maxWatchers);
  router.service(Health, {
    check: wrap("health", health.check) as ServiceImpl<typeof Health>["check"],
    async *watch(_request, context) {
      guard("health", context);
      yield* healthStates(watch, context);
    },
  });
}

/** Connect says in the signal's reason whether the deadline passed. */
function abortReason(context: HandlerContext, reason: unknown): unknown {
  return toConnectError(context.signal.reason ?? reason);
}

async function* healthStates(
  health: HealthWatch,
  context: HandlerContext,
): AsyncGenerator<MessageInitShape<typeof HealthCheckResponseSchema>> {
  const states = new AsyncQueue<MessageInitShape<typeof HealthCheckResponseSchema>>();
  let stop = () => {};
  const abort = () => states.end(context.signal.reason);
  try {
    stop = health.watch({
      status: (status) => states.push({ status }),
      end: (reason) => states.end(reason),
    });
    context.signal.addEventListener("abort", abort);
    yield* states;
  } catch (reason) {
    throw toConnectError(reason);
  } finally {
    stop();
    context.signal.removeEventListener("abort", abort);
  }
}
