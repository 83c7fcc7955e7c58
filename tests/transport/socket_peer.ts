import {
  type Listener,
  type ListenerHandlers,
  openListener,
} from "../../server/transport/listener.ts";
import type { ListenerOptions } from "../../server/transport/listener_options.ts";
import { BufferPool } from "../../server/transport/buffer_pool.ts";
import { FrameType } from "../../server/transport/http2_frames.ts";
import type {
  CancelSignal,
  HttpRequest,
  HttpResponse,
  RpcStream,
} from "../../server/transport/transport.ts";
import {
  concat,
  frame,
  FrameParser,
  message,
  type PeerFrame,
  PREFACE,
  settingsFrame,
} from "./http2_peer.ts";
import { fromLatin1, latin1 } from "./memory_connection.ts";

/** A listener for a test, with its pool and the faults of its handlers. */
export interface TestListener extends AsyncDisposable {
  readonly listener: Listener;
  readonly pool: BufferPool;
  readonly faults: unknown[];
}

/** Opens a listener on a free port of the loopback; disposing drains it and checks that all memory came back. */
export async function openTestListener(
  handlers: Partial<ListenerHandlers> = {},
  options: Partial<ListenerOptions> = {},
): Promise<TestListener> {
  const pool = new BufferPool({ poison: true });
  const faults: unknown[] = [];
  const listener = await openListener(
    { address: "127.0.0.1", port: 0, pool, onError: (error) => faults.push(error), ...options },
    { http: echoHttp, rpc: echoRpc, ...handlers },
  );
  return {
    listener,
    pool,
    faults,
    async [Symbol.asyncDispose]() {
      await listener.drain(5_000);
      if (pool.outstandingCount !== 0) {
        throw new Error(`${pool.outstandingCount} buffers not given back`);
      }
      if (pool.chargedBytes !== 0) throw new Error(`${pool.chargedBytes} bytes still charged`);
    },
  };
}

/** Answers with the request's body, later when asked to wait. */
export const echoHttp = {
  async handle(request: HttpRequest): Promise<HttpResponse> {
    const waitMs = Number(request.headers.get("x-wait") ?? "0");
    if (waitMs > 0) await abortableWait(waitMs, request.signal);
    return { status: 200, body: [request.body] };
  },
};

/** Answers every message with itself and ends after the peer. */
export const echoRpc = {
  maxMessageBytes: 2 ** 31 - 1,
  open(stream: RpcStream): void {
    stream.sendHeaders([["content-type", "application/grpc"]]);
    stream.onMessage = (bytes, _compressed, release) => {
      if (!stream.send([message(bytes).subarray(0, 5), bytes], release)) stream.pause();
    };
    stream.onDrain = () => stream.resume();
    stream.onEnd = () => stream.finish([["grpc-status", "0"]]);
  },
};

function abortableWait(waitMs: number, signal: CancelSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, waitMs);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Sends text and reads until the server closes or `until` matches. */
export async function exchangeText(
  connection: Deno.Conn,
  text: string,
  until?: RegExp,
): Promise<string> {
  await writeFully(connection, latin1(text));
  let answer = "";
  const buffer = new Uint8Array(65_536);
  while (until === undefined || !until.test(answer)) {
    const count = await connection.read(buffer).catch(() => null);
    if (count === null) break;
    answer += fromLatin1(buffer.subarray(0, count));
  }
  return answer;
}

export async function writeFully(connection: Deno.Conn, bytes: Uint8Array): Promise<void> {
  let at = 0;
  while (at < bytes.length) at += await connection.write(bytes.subarray(at));
}

/** A plain HTTP/2 client on a socket. */
export class Http2Peer implements Disposable {
  readonly connection: Deno.Conn;
  readonly #parser = new FrameParser();
  #unread: PeerFrame[] = [];
  readonly #buffer = new Uint8Array(262_144);
  #closed = false;

  constructor(connection: Deno.Conn) {
    this.connection = connection;
  }

  static async open(
    connection: Deno.Conn,
    ...settings: readonly (readonly [number, number])[]
  ): Promise<Http2Peer> {
    const peer = new Http2Peer(connection);
    await peer.send(PREFACE, settingsFrame(...settings));
    return peer;
  }

  send(...parts: Uint8Array[]): Promise<void> {
    return writeFully(this.connection, concat(...parts));
  }

  /** Next frames, at least one; undefined when the connection ended. */
  async read(): Promise<PeerFrame[] | undefined> {
    if (this.#unread.length > 0) return this.#unread.splice(0);
    for (;;) {
      const count = await this.connection.read(this.#buffer).catch(() => null);
      if (count === null) return undefined;
      const frames = this.#parser.push(this.#buffer.subarray(0, count));
      for (const found of frames) {
        if (found.type === FrameType.SETTINGS && found.flags === 0) {
          await this.send(frame(FrameType.SETTINGS, { flags: 1 }));
        }
      }
      if (frames.length > 0) return frames;
    }
  }

  /** Reads until a frame matches; returns all frames up to it. Rejects when the connection ends before. */
  async readUntil(matches: (found: PeerFrame) => boolean): Promise<PeerFrame[]> {
    const all: PeerFrame[] = [];
    for (;;) {
      const frames = await this.read();
      if (frames === undefined) throw new Error("Connection ended");
      const index = frames.findIndex(matches);
      if (index >= 0) {
        this.#unread = frames.slice(index + 1);
        return all.concat(frames.slice(0, index + 1));
      }
      all.push(...frames);
    }
  }

  [Symbol.dispose](): void {
    if (this.#closed) return;
    this.#closed = true;
    try {
      this.connection.close();
    } catch {
      // Ended before.
    }
  }
}

export function isEnd(streamId: number): (found: PeerFrame) => boolean {
  return (found) =>
    found.streamId === streamId && (found.flags & 1) === 1 &&
    (found.type === FrameType.HEADERS || found.type === FrameType.DATA);
}
