import type { ConnectHandler } from "../grpc/connect_adapter.ts";
import type { HttpHandler } from "../transport/transport.ts";

/** Puts gRPC-Web, Connect and JSON in front of another handler. */
export function createConnectFront(connect: ConnectHandler, rest: HttpHandler): HttpHandler {
  return {
    arrivalTime: () => rest.arrivalTime?.() ?? 0,
    admit: (head) => connect.matches(head) ? connect.admit(head) : rest.admit?.(head),
    handle: (request) => connect.matches(request) ? connect.handle(request) : rest.handle(request),
  };
}

/** For listeners that serve no REST endpoint. */
export const NOT_FOUND: HttpHandler = {
  admit: () => ({ status: 404 }),
  handle: () => ({ status: 404 }),
};
