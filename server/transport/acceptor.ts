import { closeQuietly, type Connection } from "./connection.ts";
import type { ListenerOptions } from "./listener_options.ts";
import { openMutualTlsAcceptor } from "./mutual_tls.ts";
import { removeSocketFile, removeStaleSocket } from "./socket_file.ts";

/** Hands out connections; hides how they come about. */
export interface Acceptor {
  readonly address: string;
  /** 0 for a unix socket. */
  readonly port: number;
  /** The next connection; undefined when the acceptor is closed. Rejects for a connection that failed: just go on. */
  accept(): Promise<Connection | undefined>;
  close(): void;
}

const ALPN_PROTOCOLS = ["h2", "http/1.1"];

/** Opens what the options ask for. */
export async function openAcceptor(options: ListenerOptions): Promise<Acceptor> {
  const { tls, path } = options;
  if (path !== undefined) return await openUnixAcceptor(path);
  if (tls?.clientCa !== undefined) return await openMutualTlsAcceptor(options, tls);
  const { address: hostname, port } = options;
  const reusePort = options.reusePort === true ? { reusePort: true } : {};
  if (tls === undefined) return new DenoAcceptor(Deno.listen({ hostname, port, ...reusePort }));
  const { cert, key } = tls;
  const listener = Deno.listenTls({
    hostname,
    port,
    cert,
    key,
    alpnProtocols: ALPN_PROTOCOLS,
    ...reusePort,
  });
  const acceptor = new DenoAcceptor(listener);
  // TlsConn has no setNoDelay in Deno 2.9; accepted sockets inherit it from the listening one.
  options.setListenerNoDelay?.(acceptor.port);
  return acceptor;
}

class DenoAcceptor implements Acceptor {
  readonly address: string;
  readonly port: number;
  readonly #listener: Deno.Listener | Deno.TlsListener | Deno.UnixListener;
  #closed = false;

  constructor(listener: Deno.Listener | Deno.TlsListener | Deno.UnixListener, path?: string) {
    const { addr } = listener;
    this.#listener = listener;
    this.address = path ?? (addr as Deno.NetAddr).hostname;
    this.port = path === undefined ? (addr as Deno.NetAddr).port : 0;
  }

  async accept(): Promise<Connection | undefined> {
    if (this.#closed) return undefined;
    try {
      const connection = await this.#listener.accept();
      if ("setNoDelay" in connection) setNoDelay(connection as Deno.TcpConn);
      return connection;
    } catch (error) {
      if (this.#closed || error instanceof Deno.errors.BadResource) return undefined;
      throw error;
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#listener.close();
  }
}

function setNoDelay(connection: Deno.TcpConn): void {
  try {
    connection.setNoDelay(true);
  } catch (error) {
    closeQuietly(connection);
    throw error;
  }
}

async function openUnixAcceptor(path: string): Promise<Acceptor> {
  await removeStaleSocket(path);
  const acceptor = new DenoAcceptor(Deno.listen({ transport: "unix", path }), path);
  const close = acceptor.close.bind(acceptor);
  acceptor.close = () => {
    close();
    removeSocketFile(path);
  };
  return acceptor;
}
