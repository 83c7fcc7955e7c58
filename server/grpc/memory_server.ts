import { DEFAULT_GRPC_OPTIONS, type GrpcOptions, type SetTimer } from "./grpc_options.ts";
import { createGrpcHandler } from "./grpc_server.ts";
import { MemoryApi } from "./memory_api.ts";
import { MemoryStream } from "./memory_stream.ts";

const SERVICE = "/inference.GRPCInferenceService";

/** A gRPC frontend on a facade in memory and virtual time, for tests. */
export interface MemoryServer<Clock> {
  readonly api: MemoryApi;
  readonly clock: Clock;
  /** Opens a stream; methods of the inference service need no path. */
  open(method: string, headers?: Readonly<Record<string, string>>): MemoryStream;
  /** Makes a unary call and waits for its end. */
  call(
    method: string,
    message: Uint8Array,
    headers?: Readonly<Record<string, string>>,
  ): Promise<MemoryStream>;
}

export function createMemoryServer<Clock extends { setTimer: SetTimer }>(
  clock: Clock,
  options: Partial<GrpcOptions> = {},
): MemoryServer<Clock> {
  const api = new MemoryApi();
  const setTimer: SetTimer = (delayMs, callback) => clock.setTimer(delayMs, callback);
  const handler = createGrpcHandler(api, { ...DEFAULT_GRPC_OPTIONS, setTimer, ...options });
  const open: MemoryServer<Clock>["open"] = (method, headers = {}) => {
    const path = method.startsWith("/") ? method : `${SERVICE}/${method}`;
    const stream = new MemoryStream(path, headers);
    handler.open(stream);
    return stream;
  };
  return {
    api,
    clock,
    open,
    async call(method, message, headers) {
      const stream = open(method, headers);
      stream.message(message);
      stream.end();
      await stream.finished();
      return stream;
    },
  };
}

/** Status and decoded message of a stream that ended. */
export function statusOf({ trailers }: MemoryStream): [string | undefined, string] {
  return [trailers?.["grpc-status"], decodeURIComponent(trailers?.["grpc-message"] ?? "")];
}
