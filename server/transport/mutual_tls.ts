import type { Server as TlsServer, TLSSocket } from "node:tls";
import type { Acceptor } from "./acceptor.ts";
import type { Connection } from "./connection.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import type { ListenerOptions, TlsOptions } from "./listener_options.ts";

/** Received bytes of one socket above which it is paused, and below which it goes on. */
const PAUSE_BYTES = 4_194_304;
const RESUME_BYTES = 1_048_576;
const DESTROY_DELAY_MS = 1_000;

/** A TLS listener that asks for client certificates, which `Deno.listenTls` cannot. */
export async function openMutualTlsAcceptor(
  options: ListenerOptions,
  tls: TlsOptions,
): Promise<Acceptor> {
  const { createServer } = await import("node:tls");
  const { maxConnections, handshakeTimeoutMs } = { ...DEFAULT_LIMITS, ...options.limits };
  const waiting: Connection[] = [];
  const takers: ((connection: Connection | undefined) => void)[] = [];
  let closed = false;
  const server = createServer({
    cert: tls.cert,
    key: tls.key,
    ca: tls.clientCa!,
    requestCert: true,
    rejectUnauthorized: true,
    ALPNProtocols: ["h2", "http/1.1"],
    handshakeTimeout: handshakeTimeoutMs,
  }, (socket: TLSSocket) => {
    // Unlike a kernel, Node accepts whoever comes: no more may wait here than are served.
    if (waiting.length >= maxConnections) {
      socket.destroy();
      return;
    }
    socket.setNoDelay(true);
    const connection = new SocketConnection(socket);
    const taker = takers.shift();
    if (taker !== undefined) taker(connection);
    else waiting.push(connection);
  });
  // A failed handshake is the client's matter; without a listener it would end the process.
  server.on("tlsClientError", () => {});
  await listen(server, options);
  server.on("error", () => {});
  const bound = server.address() as { address: string; port: number };
  return {
    address: bound.address,
    port: bound.port,
    accept: () => {
      if (closed) return Promise.resolve(undefined);
      const connection = waiting.shift();
      if (connection !== undefined) return Promise.resolve(connection);
      return new Promise((resolve) => takers.push(resolve));
    },
    close: () => {
      if (closed) return;
      closed = true;
      server.close();
      for (const connection of waiting) connection.close();
      for (const taker of takers) taker(undefined);
    },
  };
}

function listen(server: TlsServer, { address, port }: ListenerOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen({ host: address, port }, () => {
      server.off("error", reject);
      resolve();
    });
  });
}

/** A Node socket as a connection. */
export class SocketConnection implements Connection {
  readonly #socket: TLSSocket;
  readonly #chunks: Uint8Array[] = [];
  #chunkBytes = 0;
  #ended = false;
  #error: Error | undefined;
  #wake: (() => void) | undefined;

  constructor(socket: TLSSocket) {
    this.#socket = socket;
    socket.on("data", (chunk: Uint8Array) => {
      this.#chunks.push(chunk);
      this.#chunkBytes += chunk.length;
      if (this.#chunkBytes > PAUSE_BYTES) socket.pause();
      this.#notify();
    });
    const end = () => {
      this.#ended = true;
      this.#notify();
    };
    socket.on("end", end);
    socket.on("close", end);
    socket.on("error", (error: Error) => {
      this.#error = error;
      this.#notify();
    });
  }

  async read(buffer: Uint8Array): Promise<number | null> {
    while (this.#chunks.length === 0) {
      if (this.#error !== undefined) throw this.#error;
      if (this.#ended) return null;
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
    let filled = 0;
    while (this.#chunks.length > 0 && filled < buffer.length) {
      const chunk = this.#chunks[0]!;
      const count = Math.min(chunk.length, buffer.length - filled);
      buffer.set(chunk.subarray(0, count), filled);
      filled += count;
      if (count === chunk.length) this.#chunks.shift();
      else this.#chunks[0] = chunk.subarray(count);
    }
    this.#chunkBytes -= filled;
    if (this.#chunkBytes < RESUME_BYTES && this.#socket.isPaused()) this.#socket.resume();
    return filled;
  }

  write(bytes: Uint8Array): Promise<number> {
    return new Promise((resolve, reject) => {
      // Node keeps the bytes for as long as it likes, the caller does not.
      const copy = bytes.slice();
      const gone = () => reject(this.#error ?? new Error("Connection is closed"));
      if (this.#socket.destroyed) return gone();
      this.#socket.once("close", gone);
      this.#socket.write(copy, (error?: Error | null) => {
        this.#socket.off("close", gone);
        if (error) reject(error);
        else resolve(copy.length);
      });
    });
  }

  closeWrite(): Promise<void> {
    return new Promise((resolve) => this.#socket.end(() => resolve()));
  }

  close(): void {
    this.#ended = true;
    this.#notify();
    if (this.#socket.destroyed) return;
    this.#socket.end();
    const timer = setTimeout(() => this.#socket.destroy(), DESTROY_DELAY_MS);
    this.#socket.once("close", () => clearTimeout(timer));
    this.#socket.resume();
  }

  #notify(): void {
    const wake = this.#wake;
    this.#wake = undefined;
    wake?.();
  }
}
