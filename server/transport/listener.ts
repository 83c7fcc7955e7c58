import { type Acceptor, openAcceptor } from "./acceptor.ts";
import { BufferPool } from "./buffer_pool.ts";
import {
  closeQuietly,
  type Connection,
  type ProtocolConnection,
  type TransportContext,
} from "./connection.ts";
import { Http1Connection } from "./http1.ts";
import { Http2Connection } from "./http2_connection.ts";
import { DEFAULT_LIMITS } from "./limits.ts";
import type { ListenerOptions } from "./listener_options.ts";
import { PeerClock } from "./peer_clock.ts";
import { sniffProtocol } from "./sniff.ts";
import type { HttpHandler, RpcHandler } from "./transport.ts";

/** How often deadlines are looked at. */
const TICK_MS = 250;
/** Pause after a failed accept, so that a lack of descriptors does not become a busy loop. */
const ACCEPT_PAUSE_MS = 50;
/** `setTimeout` takes anything longer for no time at all. */
export const LONGEST_TIMEOUT_MS: number = 2 ** 31 - 1;

/** An open listening socket and its connections. */
export interface Listener {
  /** Bound address, or the path of the unix socket. */
  readonly address: string;
  /** Bound port; 0 for a unix socket. */
  readonly port: number;
  /** Connections at the moment. */
  readonly connectionCount: number;
  /**
   * Stops accepting, tells peers to go away and waits for what is in progress; what lasts longer than `timeoutMs` is
   * cut off. True when everything ended by itself.
   */
  drain(timeoutMs: number): Promise<boolean>;
  /** Stops accepting and cuts every connection off. */
  close(): void;
}

/** Who answers on a listener. */
export interface ListenerHandlers {
  readonly http: HttpHandler;
  readonly rpc?: RpcHandler;
}

/** Opens a listener that serves HTTP/1.1 and HTTP/2 on the same socket. Rejects when it cannot be bound. */
export async function openListener(
  options: ListenerOptions,
  handlers: ListenerHandlers,
): Promise<Listener> {
  const context: TransportContext = {
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    http: handlers.http,
    rpc: handlers.rpc,
    pool: options.pool ?? new BufferPool(),
    now: performance.now(),
    reportError: options.onError ?? (() => {}),
  };
  return new SocketListener(await openAcceptor(options), context);
}

/** A connection before its protocol is known. */
interface Greeting {
  readonly connection: Connection;
  readonly since: number;
}

class SocketListener implements Listener {
  readonly #acceptor: Acceptor;
  readonly #context: TransportContext;
  readonly #greetings = new Set<Greeting>();
  readonly #connections = new Set<ProtocolConnection>();
  readonly #clock: PeerClock;
  readonly #timer: ReturnType<typeof setInterval>;
  #draining = false;
  #waiters: (() => void)[] = [];

  constructor(acceptor: Acceptor, context: TransportContext) {
    this.#acceptor = acceptor;
    this.#context = context;
    this.#clock = new PeerClock(context.now);
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
    Deno.unrefTimer(Number(this.#timer));
    void this.#acceptLoop();
  }

  get address(): string {
    return this.#acceptor.address;
  }

  get port(): number {
    return this.#acceptor.port;
  }

  get connectionCount(): number {
    return this.#connections.size + this.#greetings.size;
  }

  async drain(timeoutMs: number): Promise<boolean> {
    this.#draining = true;
    this.#acceptor.close();
    for (const { connection } of this.#greetings) closeQuietly(connection);
    for (const connection of [...this.#connections]) connection.drain();
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      this.#changed();
    }, Math.min(timeoutMs, LONGEST_TIMEOUT_MS));
    while (this.connectionCount > 0 && !isLate) await this.#change();
    clearTimeout(timer);
    this.close();
    return !isLate;
  }

  close(): void {
    this.#draining = true;
    this.#acceptor.close();
    clearInterval(this.#timer);
    this.#changed();
    for (const { connection } of this.#greetings) closeQuietly(connection);
    for (const connection of [...this.#connections]) connection.close();
  }

  /** Goes on whatever happens to single connections: `accept` rejects for one that was reset meanwhile. */
  async #acceptLoop(): Promise<void> {
    for (;;) {
      try {
        const connection = await this.#acceptor.accept();
        if (connection === undefined) return;
        void this.#serve(connection);
        if (this.connectionCount >= this.#context.limits.maxConnections) {
          await this.#roomForOneMore();
        }
      } catch (error) {
        if (!isResetBeforeAccept(error)) await pause(ACCEPT_PAUSE_MS);
      }
    }
  }

  async #serve(connection: Connection): Promise<void> {
    const greeting = { connection, since: this.#context.now };
    this.#greetings.add(greeting);
    const sniffed = await sniffProtocol(connection).catch(() => undefined);
    this.#greetings.delete(greeting);
    if (sniffed === undefined || this.#draining) {
      closeQuietly(connection);
      this.#changed();
      return;
    }
    const protocol = sniffed.isHttp2
      ? new Http2Connection(connection, this.#context)
      : new Http1Connection(connection, this.#context);
    this.#connections.add(protocol);
    try {
      await protocol.run(sniffed.first);
    } catch (error) {
      // A fault of the transport itself must not end the process.
      this.#context.reportError(error);
      protocol.close();
    } finally {
      this.#connections.delete(protocol);
      this.#changed();
    }
  }

  #tick(): void {
    const { limits } = this.#context;
    const now = this.#clock.advance(performance.now());
    this.#context.now = now;
    for (const { connection, since } of this.#greetings) {
      if (now - since > limits.handshakeTimeoutMs) closeQuietly(connection);
    }
    for (const connection of [...this.#connections]) connection.tick();
    this.#context.pool.trim(now);
  }

  async #roomForOneMore(): Promise<void> {
    const { maxConnections } = this.#context.limits;
    while (this.connectionCount >= maxConnections && !this.#draining) await this.#change();
  }

  /** Resolves when a connection has ended. */
  #change(): Promise<void> {
    return new Promise((resolve) => this.#waiters.push(resolve));
  }

  #changed(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const resolve of waiters) resolve();
  }
}

/** The peer of a connection was gone before it was accepted: nothing to wait for. */
function isResetBeforeAccept(error: unknown): boolean {
  return error instanceof Deno.errors.NotConnected ||
    error instanceof Deno.errors.ConnectionReset ||
    error instanceof Deno.errors.ConnectionAborted;
}

function pause(delayMs: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, delayMs);
    Deno.unrefTimer(Number(timer));
  });
}
