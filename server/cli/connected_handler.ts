import type {
  HttpHandler,
  HttpRequest,
  HttpResponse,
  RequestHead,
} from "../transport/transport.ts";

/** The part of an HTTP listener that speaks gRPC-Web, Connect and JSON. */
export interface ConnectHandler {
  matches(head: RequestHead): boolean;
  handle(request: HttpRequest): Promise<HttpResponse>;
}

/** Puts the Connect protocols in front of another handler. */
export function createConnectedHandler(connect: ConnectHandler, rest: HttpHandler): HttpHandler {
  return {
    admit: (head) => connect.matches(head) ? undefined : rest.admit?.(head),
    handle: (request) => connect.matches(request) ? connect.handle(request) : rest.handle(request),
  };
}
