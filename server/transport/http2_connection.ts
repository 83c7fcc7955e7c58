import {
  closeQuietly,
  type Connection,
  lingerAndClose,
  type ProtocolConnection,
  type TransportContext,
} from "./connection.ts";
import {
  DEFAULT_WINDOW_BYTES,
  encodeGoaway,
  encodeSettings,
  encodeUint32,
  ErrorCode,
  type Frame,
  FrameFlag,
  FrameType,
  Http2Error,
  MAX_STREAM_ID,
  Setting,
} from "./http2_frames.ts";
import { AbuseGuard } from "./http2_guard.ts";
import { Http2Lifetime } from "./http2_lifetime.ts";
import { Http2Output } from "./http2_output.ts";
import { FrameReader, type FrameSink } from "./http2_reader.ts";
import { PeerSettings } from "./http2_settings.ts";
import { Http2StreamTable } from "./http2_stream_table.ts";
import type { Http2Stream } from "./http2_stream.ts";

const EMPTY = new Uint8Array(0);
const MAX_BACKLOG_BYTES = 2_097_152;
const KEEPALIVE_PING = Uint8Array.of(0x6b, 0x65, 0x65, 0x70, 0, 0, 0, 1);
const DRAIN_PING = Uint8Array.of(0x64, 0x72, 0x61, 0x69, 0x6e, 0, 0, 1);
/** How long the peer has to answer the ping that comes with the first GOAWAY. */
const DRAIN_PING_TIMEOUT_MS = 1_000;

type DrainState = "open" | "announced" | "final";

/** Server side of one HTTP/2 connection (RFC 9113): frames that concern the connection, and its beginning and end. */
export class Http2Connection implements ProtocolConnection, FrameSink {
  readonly #connection: Connection;
  readonly #context: TransportContext;
  readonly #output: Http2Output;
  readonly #guard: AbuseGuard;
  readonly #lifetime: Http2Lifetime;
  readonly #streams: Http2StreamTable;
  readonly #settings = new PeerSettings();
  #receiveWindow: number;
  /** Of the DATA frame under way; undefined when its content is dropped. */
  #dataStream: Http2Stream | undefined;
  #dataEndsStream = false;
  #resumeReading: (() => void) | undefined;
  #drainState: DrainState = "open";
  #drainedAt = 0;
  #lingerTimer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(connection: Connection, context: TransportContext) {
    this.#connection = connection;
    this.#context = context;
    this.#receiveWindow = context.limits.connectionWindowBytes;
    this.#output = new Http2Output(connection, context, () => this.#written());
    this.#guard = new AbuseGuard(context);
    this.#streams = new Http2StreamTable({
      context,
      output: this.#output,
      guard: this.#guard,
      settings: this.#settings,
      onEmpty: () => this.#finishDrain(),
    });
    this.#lifetime = new Http2Lifetime(context, {
      streamCount: () => this.#streams.count,
      trySendPing: () => this.#trySendKeepalive(),
      drain: () => this.drain(),
      close: () => this.close(),
    });
  }

  async run(first: Uint8Array): Promise<void> {
    this.#sendPreface();
    const { maxFrameBytes, maxHeaderListBytes } = this.#context.limits;
    const reader = new FrameReader(this.#connection, {
      sink: this,
      limits: { maxFrameBytes, maxHeldFrameBytes: Math.max(16_384, maxHeaderListBytes) },
    });
    try {
      await reader.run(first);
    } catch (error) {
      if (!this.#closed && error instanceof Http2Error) await this.#fail(error);
    }
    this.close();
  }

  tick(): void {
    if (this.#closed) return;
    if (this.#output.isStalled) return this.close();
    this.#lifetime.tick();
    this.#streams.tick();
    const { now, limits } = this.#context;
    if (
      this.#streams.headerBlockSince > 0 &&
      now - this.#streams.headerBlockSince > limits.headerTimeoutMs
    ) {
      this.close();
    }
    if (this.#drainState === "announced" && now - this.#drainedAt > DRAIN_PING_TIMEOUT_MS) {
      this.#finalGoaway();
    }
  }

  drain(): void {
    if (this.#drainState !== "open" || this.#closed) return;
    this.#drainState = "announced";
    this.#drainedAt = this.#context.now;
    // The last stream is not known yet: requests may be under way. The ping's answer tells that they have arrived.
    this.#sendGoaway(MAX_STREAM_ID, ErrorCode.NO_ERROR);
    this.#sendPing(DRAIN_PING, 0);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    clearTimeout(this.#lingerTimer);
    closeQuietly(this.#connection);
    this.#output.close();
    this.#streams.resetAll();
    this.#resumeReading?.();
  }

  // ---- input

  received(): void {
    this.#lifetime.noteReceived();
  }

  backPressure(): Promise<void> | undefined {
    if (this.#output.pendingBytes <= MAX_BACKLOG_BYTES || this.#closed) return undefined;
    return new Promise((resolve) => this.#resumeReading = resolve);
  }

  frame(frame: Frame): void {
    this.#checkSequence(frame);
    switch (frame.type) {
      case FrameType.HEADERS:
        return this.#streams.headers(frame);
      case FrameType.PRIORITY:
        this.#guard.noteEmptyFrame();
        return this.#streams.priority(frame);
      case FrameType.RST_STREAM:
        return this.#streams.peerReset(frame);
      case FrameType.SETTINGS:
        return this.#settingsFrame(frame);
      case FrameType.PUSH_PROMISE:
        throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client");
      case FrameType.PING:
        return this.#ping(frame);
      case FrameType.GOAWAY:
        checkConnectionFrame(frame);
        return;
      case FrameType.WINDOW_UPDATE:
        return this.#windowUpdate(frame);
      case FrameType.CONTINUATION:
        return this.#streams.continuation(frame);
      default:
        this.#guard.noteEmptyFrame();
    }
  }

  dataStart(frame: Frame, contentBytes: number): void {
    this.#checkSequence(frame);
    const byteSize = frame.end - frame.start;
    this.#dataEndsStream = (frame.flags & FrameFlag.END_STREAM) !== 0;
    if (contentBytes === 0 && !this.#dataEndsStream) this.#guard.noteEmptyFrame();
    this.#receiveWindow -= byteSize;
    if (this.#receiveWindow < 0) {
      throw new Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "Connection window is exceeded");
    }
    const { connectionWindowBytes } = this.#context.limits;
    if (this.#receiveWindow < connectionWindowBytes / 2) {
      this.#sendWindowUpdate(connectionWindowBytes - this.#receiveWindow);
      this.#receiveWindow = connectionWindowBytes;
    }
    this.#dataStream = this.#streams.dataStart(frame, contentBytes);
  }

  data(bytes: Uint8Array, start: number, end: number): void {
    const stream = this.#dataStream;
    if (stream === undefined || stream.closed) return;
    stream.receive(bytes, start, end);
  }

  dataEnd(): void {
    const stream = this.#dataStream;
    this.#dataStream = undefined;
    if (stream !== undefined && this.#dataEndsStream) this.#streams.remoteEnd(stream);
  }

  directRoom(wanted: number): Uint8Array | undefined {
    const stream = this.#dataStream;
    if (stream === undefined || stream.closed) return undefined;
    return stream.sink.directRoom(wanted);
  }

  directFilled(count: number): void {
    const stream = this.#dataStream;
    if (stream !== undefined) stream.receiveDirectly(count);
  }

  /** Nothing may come between the parts of a header block, and SETTINGS come first. */
  #checkSequence(frame: Frame): void {
    if (!this.#streams.accepts(frame)) {
      throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "Frame inside a header block");
    }
    if (!this.#lifetime.hasSettings && frame.type !== FrameType.SETTINGS) {
      throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "First frame is not SETTINGS");
    }
  }

  #settingsFrame(frame: Frame): void {
    const byteSize = frame.end - frame.start;
    checkConnectionFrame(frame);
    this.#lifetime.noteSettings();
    if ((frame.flags & FrameFlag.ACK) !== 0) {
      if (byteSize > 0) {
        throw new Http2Error(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS ACK has a payload");
      }
      return;
    }
    if (byteSize % 6 !== 0) {
      throw new Http2Error(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS frame has the wrong size");
    }
    this.#guard.noteEmptyFrame();
    const before = this.#settings.initialWindowBytes;
    this.#settings.apply(frame);
    this.#output.frame({ type: FrameType.SETTINGS, flags: FrameFlag.ACK, streamId: 0 }, EMPTY);
    this.#streams.shiftWindows(this.#settings.initialWindowBytes - before);
  }

  #ping(frame: Frame): void {
    checkConnectionFrame(frame);
    if (frame.end - frame.start !== 8) {
      throw new Http2Error(ErrorCode.FRAME_SIZE_ERROR, "PING frame has the wrong size");
    }
    const payload = frame.bytes.subarray(frame.start, frame.end);
    if ((frame.flags & FrameFlag.ACK) === 0) {
      this.#guard.notePing(this.#streams.count);
      this.#sendPing(payload, FrameFlag.ACK);
    } else if (this.#drainState === "announced" && payload[0] === DRAIN_PING[0]) {
      this.#finalGoaway();
    }
  }

  #windowUpdate(frame: Frame): void {
    if (frame.end - frame.start !== 4) {
      throw new Http2Error(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE frame has the wrong size");
    }
    this.#streams.windowUpdate(frame);
  }

  // ---- output

  #sendPreface(): void {
    const { limits } = this.#context;
    const settings = encodeSettings([
      [Setting.MAX_CONCURRENT_STREAMS, limits.maxConcurrentStreams],
      [Setting.INITIAL_WINDOW_SIZE, limits.streamWindowBytes],
      [Setting.MAX_FRAME_SIZE, limits.maxFrameBytes],
      [Setting.MAX_HEADER_LIST_SIZE, limits.maxHeaderListBytes],
    ]);
    this.#output.frame({ type: FrameType.SETTINGS, flags: 0, streamId: 0 }, settings);
    this.#sendWindowUpdate(limits.connectionWindowBytes - DEFAULT_WINDOW_BYTES);
  }

  #sendWindowUpdate(increment: number): void {
    if (increment <= 0) return;
    const head = { type: FrameType.WINDOW_UPDATE, flags: 0, streamId: 0 };
    this.#output.frame(head, encodeUint32(increment));
  }

  #sendPing(payload: Uint8Array, flags: number): void {
    this.#output.frame({ type: FrameType.PING, flags, streamId: 0 }, payload);
  }

  #trySendKeepalive(): boolean {
    if (!this.#guard.tryPing()) return false;
    this.#sendPing(KEEPALIVE_PING, 0);
    return true;
  }

  #sendGoaway(lastStreamId: number, code: number, debug = ""): void {
    const payload = encodeGoaway(lastStreamId, { code, debug });
    this.#output.frame({ type: FrameType.GOAWAY, flags: 0, streamId: 0 }, payload);
  }

  /** A write ended: streams may go on, and so may the input. */
  #written(): void {
    this.#streams.pumpBlocked();
    if (this.#resumeReading === undefined || this.#output.pendingBytes > MAX_BACKLOG_BYTES) return;
    const resume = this.#resumeReading;
    this.#resumeReading = undefined;
    resume();
  }

  // ---- ends

  #finalGoaway(): void {
    this.#drainState = "final";
    this.#streams.refusesStreams = true;
    this.#sendGoaway(this.#streams.lastStreamId, ErrorCode.NO_ERROR);
    this.#finishDrain();
  }

  #finishDrain(): void {
    if (this.#drainState !== "final" || this.#streams.count > 0 || this.#closed) return;
    void this.#endOutput();
  }

  /** The peer closes when it has read the last answer; if it does not, the connection is closed here. */
  async #endOutput(): Promise<void> {
    await this.#output.flushed();
    try {
      await this.#connection.closeWrite?.();
    } catch {
      return this.close();
    }
    const timer = setTimeout(() => this.close(), this.#context.limits.lingerMs);
    this.#lingerTimer = timer;
  }

  /** GOAWAY for a fault of the peer; it gets a moment to read it. */
  async #fail(error: Http2Error): Promise<void> {
    this.#streams.resetAll();
    this.#sendGoaway(this.#streams.lastStreamId, error.code, error.message);
    await this.#output.flushed();
    if (!this.#closed) await lingerAndClose(this.#connection, this.#context.limits.lingerMs);
  }
}

function checkConnectionFrame(frame: Frame): void {
  if (frame.streamId !== 0) {
    throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "Frame of the connection on a stream");
  }
}
