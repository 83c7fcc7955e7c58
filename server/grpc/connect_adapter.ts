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
import {
  checkInferBody,
  checkInferMessage,
  MAX_CONNECT_BODY_BYTES,
  MAX_CONNECT_MESSAGE_BYTES,
  MAX_JSON_MESSAGE_BYTES,
} from "./connect_limits.ts";
import { checkRestriction, type GrpcOptions } from "./grpc_options.ts";
import { toConnectError } from "./grpc_status.ts";
import { createHealthService, HealthWatch } from "./health_service.ts";
import { createInferenceService, METHOD_CATEGORIES } from "./inference_service.ts";
import { MessageCompression, type MessageEncoding } from "./message_compression.ts";
import { StateWatch } from "./state_watch.ts";
import { SMALL_MESSAGE_BYTES } from "./stream_calls.ts";

/** Serves requests of the Connect family. */
export interface ConnectHandler {
  /** True for paths of the services, whatever the method or content type. */
  matches(head: RequestHead): boolean;
  /** The answer to a request that needs no body to be refused. */
  admit(head: RequestHead): HttpResponse | undefined;
  handle(request: HttpRequest): Promise<HttpResponse>;
}

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
  const handlerOf = createHandlerTable(api, options);
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
    body: oneChunk(request),
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

/** What is wrong with the body is thrown where the protocol reads it, which makes the right answer of it. */
async function* oneChunk(request: HttpRequest): AsyncGenerator<Uint8Array> {
  const { body } = request;
  await Promise.resolve();
  if (kindOf(request) === "infer") {
    try {
      const isCompressed = (request.headers.get("content-encoding") ?? "identity") !== "identity";
      checkInferBody(body, { contentType: contentTypeOf(request), isCompressed });
    } catch (reason) {
      throw toConnectError(reason);
    }
  }
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

/** What bounds a request: its form, or that of its call. */
type RequestKind = "json" | "infer" | "small";

type HandlerTable = (head: RequestHead) => UniversalHandler | undefined;

const INFER_PATH = /^\/inference\.GRPCInferenceService\/Model(?:Stream)?Infer(?:\?|$)/;

function contentTypeOf({ headers }: RequestHead): string {
  return (headers.get("content-type") ?? "").split(";", 1)[0]!.trim().toLowerCase();
}

function kindOf(head: RequestHead): RequestKind {
  if (/json$/.test(contentTypeOf(head))) return "json";
  return INFER_PATH.test(head.target) ? "infer" : "small";
}

function createHandlerTable(api: InferenceApi, options: GrpcOptions): HandlerTable {
  const services = createServices(api, options);
  const tableOf = (kind: RequestKind, byteSize: number) =>
    connectHandlers(services, {
      kind,
      options,
      maxMessageBytes: Math.min(options.maxMessageBytes, byteSize),
    });
  const tables = {
    json: tableOf("json", MAX_JSON_MESSAGE_BYTES),
    infer: tableOf("infer", MAX_CONNECT_MESSAGE_BYTES),
    small: tableOf("small", SMALL_MESSAGE_BYTES),
  };
  return (head) => tables[kindOf(head)].get(head.target.split("?", 1)[0]!);
}

/** The handlers of one kind, by path. */
function connectHandlers(
  services: (router: ConnectRouter) => void,
  { kind, options, maxMessageBytes }: {
    kind: RequestKind;
    options: GrpcOptions;
    maxMessageBytes: number;
  },
): ReadonlyMap<string, UniversalHandler> {
  const compression = new MessageCompression({ ...options, maxMessageBytes });
  const check = kind === "infer" ? checkInferMessage : () => {};
  const isCompressing = options.responseCompressionLevel !== "none";
  const router = createConnectRouter({
    grpc: false,
    acceptCompression: (["gzip", "deflate"] as const).map((name) =>
      connectCompression(name, { compression, options, check })
    ),
    compressMinBytes: isCompressing ? 1024 : NEVER_BYTES,
    readMaxBytes: maxMessageBytes,
    binaryOptions: { readUnknownFields: false },
  });
  services(router);
  return new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
}

function connectCompression(
  name: MessageEncoding,
  { compression, options, check }: {
    compression: MessageCompression;
    options: GrpcOptions;
    check: (message: Uint8Array) => void;
  },
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
      try {
        check(message);
      } catch (reason) {
        throw toConnectError(reason);
      }
      return message as Uint8Array<ArrayBuffer>;
    },
  };
}

/** The calls of all services, ready to be added to routers. */
function createServices(
  api: InferenceApi,
  options: GrpcOptions,
): (router: ConnectRouter) => void {
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
  for (const [name, call] of Object.entries(createInferenceService(api))) {
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
  const health = createHealthService(api);
  const watch = new HealthWatch(api, new StateWatch(api, options.setTimer), options.maxWatchers);
  const healthCalls: Partial<ServiceImpl<typeof Health>> = {
    check: wrap("health", health.check) as ServiceImpl<typeof Health>["check"],
    async *watch(_request, context) {
      guard("health", context);
      yield* healthStates(watch, context);
    },
  };
  return (router) => {
    router.service(GRPCInferenceService, { ...inference, ...streaming });
    router.service(Health, healthCalls);
  };
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
