import type { BufferPool } from "./buffer_pool.ts";
import type { TransportLimits } from "./limits.ts";
import type { HttpHandler, RpcHandler } from "./transport.ts";

/** The bytes under a protocol: a socket, or its stand-in in tests. `Deno.Conn` fits. */
export interface Connection {
  /** Fills the front of `buffer`; null at the end of input. */
  read(buffer: Uint8Array): Promise<number | null>;
  /** Resolves with the number of bytes taken, at least one. */
  write(bytes: Uint8Array): Promise<number>;
  /** Ends both directions; pending reads and writes settle. */
  close(): void;
  /** Ends the output, input stays open. */
  closeWrite?(): Promise<void>;
}

/** What all connections of a listener share. */
export interface TransportContext {
  readonly limits: TransportLimits;
  readonly http: HttpHandler;
  readonly rpc?: RpcHandler | undefined;
  readonly pool: BufferPool;
  /** Monotonic milliseconds, refreshed by the listener's tick: cheap and coarse. */
  now: number;
  /** Faults of handlers that no client is told about in full. */
  reportError(error: unknown): void;
}

/** One protocol running on one connection. */
export interface ProtocolConnection {
  /** Serves until the connection ends; never rejects. `first` are bytes that were read already. */
  run(first: Uint8Array): Promise<void>;
  /** Looks at every deadline; called about every half second. */
  tick(): void;
  /** No further requests; ends by itself when what is in progress is answered. */
  drain(): void;
  /** Ends now. */
  close(): void;
}

/** Closes what may be closed already. */
export function closeQuietly(connection: Connection): void {
  try {
    connection.close();
  } catch {
    // Closed before, by the peer or by a deadline.
  }
}

/** Ends the output and drops input for a while, so that a peer that still sends can read the last answer. */
export async function lingerAndClose(connection: Connection, lingerMs: number): Promise<void> {
  const timer = setTimeout(() => closeQuietly(connection), lingerMs);
  try {
    await connection.closeWrite?.();
    const dropped = new Uint8Array(65_536);
    while (await connection.read(dropped) !== null);
  } catch {
    // The deadline or the peer ended it.
  }
  clearTimeout(timer);
  closeQuietly(connection);
}
