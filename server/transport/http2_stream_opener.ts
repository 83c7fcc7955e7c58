import type { TransportContext } from "./connection.ts";
import { Http2Exchange } from "./http2_exchange.ts";
import type { Http2RequestHead } from "./http2_request_head.ts";
import type { Http2Stream } from "./http2_stream.ts";
import {
  type AssembledStream,
  MessageAssembler,
  type MessageAssemblerOptions,
} from "./message_assembler.ts";
import { MemoryAccount } from "./receive_buffer.ts";
import type { MessageRefusal, RpcHandler } from "./transport.ts";

const GRPC_RESOURCE_EXHAUSTED = "8";
const GRPC_INTERNAL = "13";

/** Gives new streams of a connection to the handler that serves them. */
export class StreamOpener {
  readonly #context: TransportContext;
  readonly #account: MemoryAccount;
  readonly #rpc: RpcHandler | undefined;
  readonly #assembly: MessageAssemblerOptions;
  readonly #onFault: (stream: Http2Stream, error: unknown) => void;

  constructor(
    context: TransportContext,
    onFault: (stream: Http2Stream, error: unknown) => void,
  ) {
    const { pool, limits, rpc } = context;
    this.#context = context;
    this.#account = new MemoryAccount(pool, limits.maxConnectionBufferBytes);
    this.#rpc = rpc;
    this.#assembly = {
      account: this.#account,
      maxMessageBytes: rpc?.maxMessageBytes ?? 0,
      refuse: finishRefused,
    };
    this.#onFault = onFault;
  }

  open(stream: Http2Stream, head: Http2RequestHead): void {
    try {
      if (this.#rpc !== undefined && head.isRpc) {
        stream.sink = new MessageAssembler(stream, this.#assembly);
        this.#rpc.open(stream);
      } else {
        const exchange = new Http2Exchange(stream, {
          head,
          context: this.#context,
          account: this.#account,
        });
        stream.sink = exchange;
        exchange.begin();
      }
    } catch (error) {
      this.#onFault(stream, error);
    }
  }
}

/** The answer when the handler of a stream does not map refusals itself. */
function finishRefused(stream: AssembledStream, refusal: MessageRefusal): void {
  const status: [string, string][] = [
    ["grpc-status", refusal.reason === "malformed" ? GRPC_INTERNAL : GRPC_RESOURCE_EXHAUSTED],
    ["grpc-message", refusal.message],
  ];
  if (stream.headersSent) stream.finish(status);
  else stream.finish([["content-type", "application/grpc"], ...status]);
}
