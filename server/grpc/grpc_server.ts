import {
  create,
  type DescMethodUnary,
  type DescService,
  type MessageInitShape,
  toBinary,
} from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { GRPCInferenceService } from "../../proto/gen/grpc_service_pb.ts";
import { Health } from "../../proto/gen/health_pb.ts";
import type { InferenceApi } from "../core/inference_api.ts";
import type { ApiCategory } from "../core/options_frontend.ts";
import type { RpcHandler, RpcStream } from "../transport/transport.ts";
import { checkRestriction, type GrpcOptions } from "./grpc_options.ts";
import { createHealthService, HealthWatch } from "./health_service.ts";
import { createInferenceService, METHOD_CATEGORIES } from "./inference_service.ts";
import { MessageCompression } from "./message_compression.ts";
import { frameOf } from "./message_frame.ts";
import { serveModelInfer } from "./model_infer.ts";
import { ReflectionService } from "./reflection_service.ts";
import { RpcCall, type RpcContext } from "./rpc_call.ts";
import { StateWatch } from "./state_watch.ts";
import {
  checkMessageBytes,
  decodeRequest,
  receiveMessage,
  serveHealthWatch,
  serveReflection,
  serveStreamInfer,
  SMALL_MESSAGE_BYTES,
} from "./stream_calls.ts";

/** One path: whom it is restricted to, and what sets up the callbacks of its stream. */
interface RpcMethod {
  readonly category: ApiCategory | undefined;
  serve(call: RpcCall): void;
}

type UnaryCall = (
  request: unknown,
) =>
  | MessageInitShape<DescMethodUnary["output"]>
  | Promise<MessageInitShape<DescMethodUnary["output"]>>;

/** Calls whose messages may be as large as the option allows: they carry tensors or model files. */
const LARGE_METHODS: ReadonlySet<string> = new Set(["repositoryModelLoad"]);

/**
 * The gRPC frontend: `application/grpc` streams on one side, the facade on the other. The path of ModelInfer has no
 * generic machinery in it; every other call goes through the generated messages.
 */
export function createGrpcHandler(api: InferenceApi, options: GrpcOptions): RpcHandler {
  const context: RpcContext = {
    api,
    options,
    compression: new MessageCompression(options),
    stateWatch: new StateWatch(api, options.setTimer),
  };
  const methods = rpcMethods(context);
  return {
    maxMessageBytes: options.maxMessageBytes,
    open(stream: RpcStream): void {
      options.onCall?.(stream.path);
      const call = new RpcCall(stream, context);
      const method = methods.get(stream.path);
      ignoreMessages(stream);
      if (method === undefined) return call.fail(unknownMethod(stream.path));
      if (!call.begin()) return;
      try {
        if (method.category !== undefined && options.restrictedProtocols.length > 0) {
          checkRestriction(options.restrictedProtocols, method.category, stream.headers);
        }
        method.serve(call);
      } catch (reason) {
        call.fail(reason);
      }
    },
  };
}

const noOperation = () => {};
const releaseAtOnce: RpcStream["onMessage"] = (_message, _compressed, release) => release();

/** What still arrives for a call that was refused is given back at once. */
function ignoreMessages(stream: RpcStream): void {
  stream.onMessage = releaseAtOnce;
  stream.onEnd = noOperation;
  stream.onDrain = noOperation;
}

function unknownMethod(path: string): ConnectError {
  return new ConnectError(`Unknown method '${path.slice(0, 256)}'`, Code.Unimplemented);
}

function rpcMethods(context: RpcContext): ReadonlyMap<string, RpcMethod> {
  const { api, options } = context;
  const methods = new Map<string, RpcMethod>();
  const add = (service: DescService, calls: Readonly<Record<string, unknown>>) => {
    for (const method of service.methods) {
      const call = calls[method.localName];
      if (call === undefined || method.methodKind !== "unary") continue;
      const category = service === GRPCInferenceService
        ? METHOD_CATEGORIES[method.localName as keyof typeof METHOD_CATEGORIES]
        : "health";
      methods.set(`/${service.typeName}/${method.name}`, {
        category,
        serve: (rpc) =>
          receiveMessage(rpc, unaryReceiver(rpc, method as DescMethodUnary, call as UnaryCall)),
      });
    }
  };
  add(GRPCInferenceService, { ...createInferenceService(api) });
  add(Health, { ...createHealthService(api) });
  const inference = `/${GRPCInferenceService.typeName}`;
  methods.set(`${inference}/ModelInfer`, {
    category: "inference",
    serve: (call) =>
      receiveMessage(call, (message, release) => serveModelInfer(call, message, release)),
  });
  methods.set(`${inference}/ModelStreamInfer`, { category: "inference", serve: serveStreamInfer });
  const health = new HealthWatch(api, context.stateWatch, options.maxWatchers);
  methods.set(`/${Health.typeName}/Watch`, {
    category: "health",
    serve: (call) => serveHealthWatch(call, health),
  });
  const reflection = new ReflectionService();
  for (const version of ["v1", "v1alpha"]) {
    methods.set(`/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`, {
      category: undefined,
      serve: (call) => serveReflection(call, reflection),
    });
  }
  return methods;
}

function unaryReceiver(rpc: RpcCall, method: DescMethodUnary, call: UnaryCall) {
  const limit = LARGE_METHODS.has(method.localName)
    ? rpc.context.options.maxMessageBytes
    : SMALL_MESSAGE_BYTES;
  return async (message: Uint8Array, release: () => void) => {
    try {
      checkMessageBytes(message, limit);
      const response = await call(decodeRequest(method.input, message));
      if (rpc.ended) return;
      rpc.sendHeaders();
      rpc.stream.send(frameOf(toBinary(method.output, create(method.output, response))));
      rpc.finish();
    } catch (reason) {
      rpc.fail(reason);
    } finally {
      release();
    }
  };
}
