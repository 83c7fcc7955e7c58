import type { BufferPool } from "./buffer_pool.ts";
import type { TransportLimits } from "./limits.ts";

/** Certificates of a TLS listener, PEM texts. */
export interface TlsOptions {
  readonly cert: string;
  readonly key: string;
  /** Certificates that clients must be signed by; asks clients for a certificate (mutual TLS). */
  readonly clientCa?: string;
}

/** What a listener is opened with. */
export interface ListenerOptions {
  /** Host name or IP address. */
  readonly address: string;
  /** 0 picks a free port. */
  readonly port: number;
  /** Path of a unix socket, instead of address and port. */
  readonly path?: string;
  /** Lets several processes listen on one port; needs Deno's `--unstable-net`. */
  readonly reusePort?: boolean;
  readonly tls?: TlsOptions;
  /** Switches TCP_NODELAY on for a listening TLS socket, which Deno itself cannot; without it answers may wait 40 ms. */
  readonly setListenerNoDelay?: (port: number) => void;
  /** Differences from `DEFAULT_LIMITS`. */
  readonly limits?: Partial<TransportLimits>;
  /** Message buffers; share one pool between listeners to share its quota. */
  readonly pool?: BufferPool;
  /** Is told about faults of handlers, which clients see only as an internal error. */
  readonly onError?: (error: unknown) => void;
}
