import type { TransportContext } from "./connection.ts";
import { HeaderBlockCache } from "./header_blocks.ts";
import { HpackDecoder, HpackError } from "./hpack.ts";
import {
  DEFAULT_WINDOW_BYTES,
  encodeUint32,
  ErrorCode,
  type Frame,
  FrameType,
  Http2Error,
  MAX_WINDOW_BYTES,
  readUint31,
} from "./http2_frames.ts";
import { type AbuseGuard, RecentStreams } from "./http2_guard.ts";
import { type HeaderBlock, HeaderBlockAssembler } from "./http2_header_block.ts";
import type { Http2Output } from "./http2_output.ts";
import {
  type Http2RequestHead,
  isTrailerSection,
  RequestHeadParser,
} from "./http2_request_head.ts";
import type { PeerSettings } from "./http2_settings.ts";
import { Http2Stream, type StreamHost } from "./http2_stream.ts";
import { Http2StreamIndex } from "./http2_stream_index.ts";
import { StreamOpener } from "./http2_stream_opener.ts";

/** What a stream table is made with. */
export interface StreamTableOptions {
  readonly context: TransportContext;
  readonly output: Http2Output;
  readonly guard: AbuseGuard;
  readonly settings: PeerSettings;
  /** The last stream ended. */
  readonly onEmpty: () => void;
}

/** The streams of one HTTP/2 connection, from HEADERS to their end. */
export class Http2StreamTable implements StreamHost {
  readonly output: Http2Output;
  readonly blocks = new HeaderBlockCache();
  readonly blocked = new Set<Http2Stream>();
  sendWindow = DEFAULT_WINDOW_BYTES;
  /** Streams above this are refused: the connection is going away. */
  refusesStreams = false;
  lastStreamId = 0;
  /** Since when a header block is incomplete; 0 = none is. */
  headerBlockSince = 0;

  readonly #options: StreamTableOptions;
  readonly #context: TransportContext;
  readonly #guard: AbuseGuard;
  readonly #opener: StreamOpener;
  readonly #headParser = new RequestHeadParser();
  readonly #decoder: HpackDecoder;
  readonly #headerBlocks: HeaderBlockAssembler;
  readonly #streams = new Http2StreamIndex();
  /** Reset by us: the peer may not know it yet. */
  readonly #recentlyReset = new RecentStreams(1_024);
  readonly #recentlyEnded = new RecentStreams(128);

  constructor(options: StreamTableOptions) {
    const { context } = options;
    const { limits } = context;
    this.#options = options;
    this.#context = context;
    this.output = options.output;
    this.#guard = options.guard;
    this.#opener = new StreamOpener(context, (stream, error) => this.fault(stream, error));
    this.#headerBlocks = new HeaderBlockAssembler(limits);
    this.#decoder = new HpackDecoder({
      maxListBytes: limits.maxHeaderListBytes,
      maxFieldCount: limits.maxHeaderCount,
    });
  }

  get count(): number {
    return this.#streams.size;
  }

  get peerMaxFrameBytes(): number {
    return this.#options.settings.maxFrameBytes;
  }

  get now(): number {
    return this.#context.now;
  }

  // ---- frames

  /** Whether `frame` may come now; inside a header block only its continuation may. */
  accepts(frame: Frame): boolean {
    return this.#headerBlocks.accepts(frame);
  }

  headers(frame: Frame): void {
    if (frame.streamId === 0 || (frame.streamId & 1) === 0) {
      throw new Http2Error(
        ErrorCode.PROTOCOL_ERROR,
        "HEADERS on a stream that is not the client's",
      );
    }
    const block = this.#headerBlocks.begin(frame);
    if (block !== undefined) this.#headerBlock(block);
    else this.headerBlockSince = Math.max(1, this.#context.now);
  }

  continuation(frame: Frame): void {
    const block = this.#headerBlocks.append(frame);
    if (block === undefined) return;
    this.headerBlockSince = 0;
    this.#headerBlock(block);
  }

  priority(frame: Frame): void {
    const { streamId } = frame;
    if (streamId === 0) throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "PRIORITY without a stream");
    if (frame.end - frame.start !== 5) this.#streamError(streamId, ErrorCode.FRAME_SIZE_ERROR);
    else if (readUint31(frame.bytes, frame.start) === streamId) {
      this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
    }
  }

  peerReset(frame: Frame): void {
    this.#checkOpened(frame.streamId, "RST_STREAM");
    if (frame.end - frame.start !== 4) {
      throw new Http2Error(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM frame has the wrong size");
    }
    const stream = this.#streams.get(frame.streamId);
    if (stream === undefined) return;
    this.#guard.noteReset();
    this.#remove(stream, this.#recentlyEnded);
    stream.remoteReset();
    this.#checkEmpty();
  }

  windowUpdate(frame: Frame): void {
    const increment = readUint31(frame.bytes, frame.start);
    if (frame.streamId === 0) return this.#growConnectionWindow(increment);
    this.#checkOpened(frame.streamId, "WINDOW_UPDATE");
    const stream = this.#streams.get(frame.streamId);
    if (stream === undefined) return;
    stream.sendWindow += increment;
    if (increment === 0) this.#streamError(stream.id, ErrorCode.PROTOCOL_ERROR);
    else if (stream.sendWindow > MAX_WINDOW_BYTES) {
      this.#streamError(stream.id, ErrorCode.FLOW_CONTROL_ERROR);
    } else if (this.blocked.has(stream)) stream.pump();
  }

  /** The peer changed the window that streams begin with. */
  shiftWindows(difference: number): void {
    for (const stream of this.#streams.values()) {
      stream.sendWindow += difference;
      if (stream.sendWindow > MAX_WINDOW_BYTES) {
        throw new Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "Stream window is too large");
      }
    }
    this.pumpBlocked();
  }

  /** Books a DATA frame; undefined when its content is to be dropped. */
  dataStart(frame: Frame, contentBytes: number): Http2Stream | undefined {
    const { streamId } = frame;
    this.#checkOpened(streamId, "DATA");
    const stream = this.#streams.get(streamId);
    if (stream === undefined) {
      if (!this.#recentlyEnded.has(streamId)) return undefined;
      throw new Http2Error(ErrorCode.STREAM_CLOSED, "DATA on a closed stream");
    }
    if (stream.remoteEnded) {
      this.#streamError(streamId, ErrorCode.STREAM_CLOSED);
      return undefined;
    }
    const byteSize = frame.end - frame.start;
    stream.lastReceiveAt = this.#context.now;
    stream.receiveWindow -= byteSize;
    stream.owedBytes += byteSize;
    stream.receivedBytes += contentBytes;
    if (stream.receiveWindow < 0) {
      this.#streamError(streamId, ErrorCode.FLOW_CONTROL_ERROR);
      return undefined;
    }
    if (!this.#matchesLength(stream, (frame.flags & 1) !== 0)) {
      this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
      return undefined;
    }
    if (stream.owedBytes >= this.#context.limits.streamWindowBytes / 2) this.grantWindow(stream);
    return stream;
  }

  remoteEnd(stream: Http2Stream): void {
    stream.remoteEnd();
  }

  pumpBlocked(): void {
    if (this.blocked.size === 0) return;
    for (const stream of [...this.blocked]) stream.pump();
  }

  /** Ends every stream: the connection is gone. */
  resetAll(): void {
    const streams = this.#streams.values();
    this.#streams.clear();
    for (const stream of streams) stream.remoteReset();
  }

  /** Ends streams in which nothing has moved for too long. */
  tick(): void {
    const { limits, now } = this.#context;
    for (const stream of this.#streams.values()) {
      const receives = !stream.remoteEnded && !stream.isPaused && stream.sink.isReceiving;
      const isSlow = receives && now - stream.lastReceiveAt > limits.bodyTimeoutMs;
      const isStalled = stream.stalledSince > 0 &&
        now - stream.stalledSince > limits.streamStallTimeoutMs;
      if (isSlow || isStalled) this.#endStream(stream, ErrorCode.CANCEL);
    }
  }

  // ---- StreamHost

  noteSent(): void {
    this.#guard.noteSent();
  }

  finished(stream: Http2Stream): void {
    this.#remove(stream, this.#recentlyEnded);
    stream.close();
    this.#checkEmpty();
  }

  abandon(stream: Http2Stream, code: number): void {
    this.#writeReset(stream.id, code);
    this.#remove(stream, this.#recentlyReset);
    stream.close();
    this.#checkEmpty();
  }

  grantWindow(stream: Http2Stream): void {
    if (stream.isPaused || stream.remoteEnded || stream.owedBytes === 0) return;
    const { owedBytes } = stream;
    stream.owedBytes = 0;
    stream.receiveWindow += owedBytes;
    const head = { type: FrameType.WINDOW_UPDATE, flags: 0, streamId: stream.id };
    this.output.frame(head, encodeUint32(owedBytes));
  }

  fault(stream: Http2Stream, error: unknown): void {
    this.#context.reportError(error);
    if (!stream.closed) this.#endStream(stream, ErrorCode.INTERNAL_ERROR);
  }

  // ---- opening

  #headerBlock(block: HeaderBlock): void {
    const decoded = this.#decode(block.bytes);
    const { streamId } = block;
    const known = this.#streams.get(streamId);
    const isMalformed = decoded.malformed || block.dependsOnItself;
    if (known !== undefined) {
      const isTrailer = block.endsStream && !isMalformed && isTrailerSection(decoded.fields);
      return this.#trailer(known, isTrailer);
    }
    if (streamId <= this.lastStreamId) return this.#lateHeaders(streamId);
    this.lastStreamId = streamId;
    if (this.refusesStreams || this.#streams.size >= this.#context.limits.maxConcurrentStreams) {
      return this.#streamError(streamId, ErrorCode.REFUSED_STREAM);
    }
    if (decoded.tooLarge) return this.#streamError(streamId, ErrorCode.ENHANCE_YOUR_CALM);
    const head = isMalformed ? undefined : this.#headParser.parse(decoded.fields);
    if (head === undefined || (block.endsStream && head.contentLength > 0)) {
      return this.#streamError(streamId, ErrorCode.PROTOCOL_ERROR);
    }
    const stream = this.#create(streamId, head);
    stream.remoteEnded = block.endsStream;
    this.#opener.open(stream, head);
    if (block.endsStream) stream.remoteEnd();
  }

  #decode(bytes: Uint8Array) {
    try {
      return this.#decoder.decode(bytes);
    } catch (error) {
      if (!(error instanceof HpackError)) throw error;
      throw new Http2Error(ErrorCode.COMPRESSION_ERROR, error.message);
    }
  }

  #trailer(stream: Http2Stream, isTrailer: boolean): void {
    if (stream.remoteEnded) return this.#streamError(stream.id, ErrorCode.STREAM_CLOSED);
    if (!isTrailer || !this.#matchesLength(stream, true)) {
      return this.#streamError(stream.id, ErrorCode.PROTOCOL_ERROR);
    }
    stream.remoteEnd();
  }

  /** Headers on a stream that is no more: late trailers of one that was reset are fine. */
  #lateHeaders(streamId: number): void {
    if (this.#recentlyReset.has(streamId)) return;
    if (this.#recentlyEnded.has(streamId)) {
      throw new Http2Error(ErrorCode.STREAM_CLOSED, "HEADERS on a closed stream");
    }
    throw new Http2Error(
      ErrorCode.PROTOCOL_ERROR,
      "Stream identifier is lower than an earlier one",
    );
  }

  #create(streamId: number, head: Http2RequestHead): Http2Stream {
    const stream = new Http2Stream(this, {
      id: streamId,
      path: head.target,
      headers: head.headers,
    });
    stream.sendWindow = this.#options.settings.initialWindowBytes;
    stream.receiveWindow = this.#context.limits.streamWindowBytes;
    stream.expectedBytes = head.contentLength;
    stream.lastReceiveAt = this.#context.now;
    this.#streams.add(stream);
    return stream;
  }

  // ---- ends

  /** A fault of the peer that ends one stream. */
  #streamError(streamId: number, code: number): void {
    this.#guard.noteReset();
    const stream = this.#streams.get(streamId);
    if (stream !== undefined) return this.#endStream(stream, code);
    this.#writeReset(streamId, code);
    this.#recentlyReset.add(streamId);
  }

  /** Resets a stream and tells its handler. */
  #endStream(stream: Http2Stream, code: number): void {
    this.#writeReset(stream.id, code);
    this.#remove(stream, this.#recentlyReset);
    stream.remoteReset();
    this.#checkEmpty();
  }

  #writeReset(streamId: number, code: number): void {
    this.output.frame({ type: FrameType.RST_STREAM, flags: 0, streamId }, encodeUint32(code));
  }

  #remove(stream: Http2Stream, recent: RecentStreams): void {
    if (this.#streams.delete(stream.id)) recent.add(stream.id);
  }

  #checkEmpty(): void {
    if (this.#streams.size === 0) this.#options.onEmpty();
  }

  // ---- checks

  #growConnectionWindow(increment: number): void {
    if (increment === 0) throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0");
    this.sendWindow += increment;
    if (this.sendWindow > MAX_WINDOW_BYTES) {
      throw new Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "Connection window is too large");
    }
    this.pumpBlocked();
  }

  #checkOpened(streamId: number, frameName: string): void {
    if (streamId === 0 || streamId > this.lastStreamId || (streamId & 1) === 0) {
      throw new Http2Error(
        ErrorCode.PROTOCOL_ERROR,
        `${frameName} on a stream that was never opened`,
      );
    }
  }

  #matchesLength(stream: Http2Stream, isEnd: boolean): boolean {
    const { expectedBytes, receivedBytes } = stream;
    if (expectedBytes < 0) return true;
    return isEnd ? receivedBytes === expectedBytes : receivedBytes <= expectedBytes;
  }
}
