/** Every bound of the transport. Times in milliseconds, sizes in bytes; `Infinity` switches a bound off. */
export interface TransportLimits {
  /** Connections of one listener at a time; further ones wait in the kernel's backlog. */
  readonly maxConnections: number;
  /** From accepting a connection to its first complete request head (TLS handshake and preface included). */
  readonly handshakeTimeoutMs: number;
  /** From the first byte of a request head to its end. */
  readonly headerTimeoutMs: number;
  /** A connection without a request in progress is closed after this time. */
  readonly idleTimeoutMs: number;
  /** Grace for a request body, on top of what `minBytesPerSecond` allows for its bytes; also a message's longest pause. */
  readonly bodyTimeoutMs: number;
  /** Longest time in which the peer takes none of the bytes written to its socket. */
  readonly writeTimeoutMs: number;
  /** Longest time in which an HTTP/2 stream with queued output is given no flow-control window. */
  readonly streamStallTimeoutMs: number;
  /** Average speed below which a slow request body is cut off, and a peer that takes its answer too slowly. */
  readonly minBytesPerSecond: number;
  /** Time between the peer's end of input during a request and the cancellation of that request. */
  readonly halfCloseGraceMs: number;
  /** How long input is still read and dropped after an error answer, so that the peer can read it. */
  readonly lingerMs: number;

  /** HTTP/1.1 request head: request line and fields together. */
  readonly maxHeadBytes: number;
  /** Fields of one request, all protocols. */
  readonly maxHeaderCount: number;
  /** Request body after transfer decoding, all protocols. */
  readonly maxBodyBytes: number;
  /** Non-empty chunks of one chunked request body. */
  readonly maxChunkCount: number;

  /** Bytes of received messages and bodies held for one connection. */
  readonly maxConnectionBufferBytes: number;

  /** HTTP/2 SETTINGS_MAX_FRAME_SIZE. */
  readonly maxFrameBytes: number;
  /** HTTP/2 SETTINGS_MAX_CONCURRENT_STREAMS. */
  readonly maxConcurrentStreams: number;
  /** HTTP/2 SETTINGS_MAX_HEADER_LIST_SIZE, and bound of one compressed header block. */
  readonly maxHeaderListBytes: number;
  /** CONTINUATION frames of one header block. */
  readonly maxContinuationCount: number;
  /** Receive window of one stream. */
  readonly streamWindowBytes: number;
  /** Receive window of a connection. */
  readonly connectionWindowBytes: number;
  /** Streams that may be reset before their answer: burst, and refill per second. */
  readonly resetBurst: number;
  readonly resetsPerSecond: number;
  /** Frames that carry nothing (SETTINGS, PING, empty DATA, PRIORITY, unknown types): burst, and refill per second. */
  readonly emptyFrameBurst: number;
  readonly emptyFramesPerSecond: number;

  /** The server pings a connection that was silent for this time (`--grpc-keepalive-time`). */
  readonly keepaliveTimeMs: number;
  /** … and closes it when nothing came back for this time (`--grpc-keepalive-timeout`). */
  readonly keepaliveTimeoutMs: number;
  /** Pings are sent and accepted without streams (`--grpc-keepalive-permit-without-calls`). */
  readonly permitWithoutCalls: boolean;
  /** Pings that are sent while nothing else is; 0 = any number (`--grpc-http2-max-pings-without-data`). */
  readonly maxPingsWithoutData: number;
  /** Pings of the peer must be this far apart unless something is sent in between; shorter is a strike. */
  readonly minRecvPingIntervalMs: number;
  /** Strikes forgiven before GOAWAY `too_many_pings`; 0 = any number (`--grpc-http2-max-ping-strikes`). */
  readonly maxPingStrikes: number;
  /** Age at which an HTTP/2 connection is told to go away, and the time its streams get to end. */
  readonly maxConnectionAgeMs: number;
  readonly maxConnectionAgeGraceMs: number;
}

/** Defaults: Triton's where it has the option, else values that no well-behaved client meets. */
export const DEFAULT_LIMITS: TransportLimits = Object.freeze({
  maxConnections: 10_000,
  handshakeTimeoutMs: 20_000,
  headerTimeoutMs: 20_000,
  idleTimeoutMs: 3_600_000,
  bodyTimeoutMs: 60_000,
  writeTimeoutMs: 60_000,
  streamStallTimeoutMs: 600_000,
  minBytesPerSecond: 1_024,
  halfCloseGraceMs: 50,
  lingerMs: 1_000,

  maxHeadBytes: 65_536,
  maxHeaderCount: 256,
  maxBodyBytes: 2_147_483_647,
  maxChunkCount: 65_536,

  maxConnectionBufferBytes: 4_294_967_296,

  maxFrameBytes: 1_048_576,
  maxConcurrentStreams: 1_000,
  maxHeaderListBytes: 131_072,
  maxContinuationCount: 64,
  streamWindowBytes: 16_777_216,
  connectionWindowBytes: 1_073_741_824,
  resetBurst: 2_000,
  resetsPerSecond: 500,
  emptyFrameBurst: 1_000,
  emptyFramesPerSecond: 100,

  keepaliveTimeMs: 7_200_000,
  keepaliveTimeoutMs: 20_000,
  permitWithoutCalls: false,
  maxPingsWithoutData: 2,
  minRecvPingIntervalMs: 300_000,
  maxPingStrikes: 2,
  maxConnectionAgeMs: Infinity,
  maxConnectionAgeGraceMs: Infinity,
});
