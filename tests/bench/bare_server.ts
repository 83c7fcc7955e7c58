/**
 * The bare transport: answers every request with the bytes it came with, through server/transport alone.
 * `deno run -A tests/bench/bare_server.ts PORT`
 */
import { openListener } from "../../server/transport/listener.ts";
import type { HttpHandler, HttpResponse, RpcHandler } from "../../server/transport/transport.ts";

const HEADER_LENGTH = "inference-header-content-length";

const http: HttpHandler = {
  handle(request): HttpResponse {
    const length = request.headers.get(HEADER_LENGTH);
    return {
      status: 200,
      headers: length === undefined
        ? [["content-type", "application/json"]]
        : [["content-type", "application/octet-stream"], [HEADER_LENGTH, length]],
      body: [request.body],
    };
  },
};

const rpc: RpcHandler = {
  maxMessageBytes: 0x7fffffff,
  open(stream) {
    let hasHeaders = false;
    stream.onMessage = (message, _compressed, release) => {
      if (!hasHeaders) {
        hasHeaders = true;
        stream.sendHeaders([[":status", "200"], ["content-type", "application/grpc"]]);
      }
      const prefix = new Uint8Array(5);
      new DataView(prefix.buffer).setUint32(1, message.length);
      stream.send([prefix, message], release);
    };
    stream.onEnd = () => stream.finish([["grpc-status", "0"]]);
    stream.onReset = () => {};
    stream.onDrain = () => {};
  },
};

if (import.meta.main) {
  const port = Number(Deno.args[0]);
  await openListener({ address: "127.0.0.1", port }, { http, rpc });
}
