import type { HeaderBlockCache } from "./header_blocks.ts";
import { ErrorCode, FrameFlag, FrameType } from "./http2_frames.ts";
import { type Http2Output, LARGE_PART_BYTES } from "./http2_output.ts";
import type { StreamSink } from "./stream_sink.ts";
import type { Headers, RpcStream } from "./transport.ts";

/** Unwritten bytes of a connection above which its streams wait. */
const MAX_PENDING_BYTES = 1_048_576;

type Fields = readonly (readonly [string, string])[];

/** What a stream needs of its connection. */
export interface StreamHost {
  readonly output: Http2Output;
  readonly blocks: HeaderBlockCache;
  /** Window of the connection for DATA to the peer. */
  sendWindow: number;
  readonly peerMaxFrameBytes: number;
  /** Streams with queued output that have to wait, in the order in which they are served. */
  readonly blocked: Set<Http2Stream>;
  readonly now: number;
  /** Something was sent: resets the count of ping strikes. */
  noteSent(): void;
  /** Both sides are done. */
  finished(stream: Http2Stream): void;
  /** The handler gave the stream up, or answered before the peer was done. */
  abandon(stream: Http2Stream, code: number): void;
  /** Grants window again after `resume`. */
  grantWindow(stream: Http2Stream): void;
  /** A callback of the handler threw. */
  fault(stream: Http2Stream, error: unknown): void;
}

interface QueuedPart {
  bytes: Uint8Array;
  readonly onSent: (() => void) | undefined;
}

const noOperation = () => {};

/** One HTTP/2 stream: the sending side, and the books of the receiving side. */
export class Http2Stream implements RpcStream {
  readonly id: number;
  readonly path: string;
  readonly headers: Headers;
  onMessage: RpcStream["onMessage"] = (_message, _compressed, release) => release();
  onRefused: RpcStream["onRefused"];
  onEnd: () => void = noOperation;
  onReset: () => void = noOperation;
  onDrain: () => void = noOperation;

  /** Set by the connection when the stream is opened. */
  sink!: StreamSink;
  sendWindow: number;
  /** Bytes the peer may still send. */
  receiveWindow: number;
  /** Received bytes for which no window was granted yet. */
  owedBytes = 0;
  /** From `content-length`; -1 when not given. */
  expectedBytes = -1;
  receivedBytes = 0;
  remoteEnded = false;
  lastReceiveAt = 0;
  /** Since when output waits for window; 0 = it does not. */
  stalledSince = 0;

  readonly #host: StreamHost;
  readonly #queue: QueuedPart[] = [];
  #closed = false;
  #paused = false;
  #headersSent = false;
  #wantsDrain = false;
  #trailers: Uint8Array | undefined;
  #endsPlainly = false;
  #endIsDelivered = false;

  constructor(host: StreamHost, head: { id: number; path: string; headers: Headers }) {
    this.#host = host;
    this.id = head.id;
    this.path = head.path;
    this.headers = head.headers;
    this.sendWindow = 0;
    this.receiveWindow = 0;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get isPaused(): boolean {
    return this.#paused;
  }

  get headersSent(): boolean {
    return this.#headersSent;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    if (!this.#closed) this.#host.grantWindow(this);
  }

  sendHeaders(fields: Fields): void {
    if (this.#closed || this.#headersSent || this.#isEnding) return;
    this.#headersSent = true;
    this.#writeHeaders(this.#host.blocks.response(fields), 0);
  }

  send(parts: readonly Uint8Array[], onSent?: () => void): boolean {
    if (this.#closed || this.#isEnding) {
      if (onSent !== undefined) this.#host.output.afterWrite(onSent);
      return false;
    }
    if (this.#queue.length === 0 && this.#sendAtOnce(parts, onSent)) return true;
    this.#enqueue(parts, onSent);
    this.pump();
    if (this.#queue.length === 0) return true;
    this.#wantsDrain = true;
    return false;
  }

  finish(trailers: Fields): void {
    if (this.#closed || this.#isEnding) return;
    const { blocks } = this.#host;
    this.#trailers = this.#headersSent ? blocks.trailers(trailers) : blocks.response(trailers);
    this.#headersSent = true;
    this.pump();
  }

  /** Queues the last bytes of a response without trailers, and its end. */
  sendLast(parts: readonly Uint8Array[], onSent?: () => void): void {
    if (this.#closed || this.#isEnding) {
      if (onSent !== undefined) this.#host.output.afterWrite(onSent);
      return;
    }
    this.#enqueue(parts, onSent);
    this.#endsPlainly = true;
    this.pump();
  }

  /** Calls back when all output of the connection that is queued now is out of use. */
  afterWrite(callback: () => void): void {
    this.#host.output.afterWrite(callback);
  }

  reset(code: number): void {
    if (!this.#closed) this.#host.abandon(this, code);
  }

  /** Content from the peer. */
  receive(bytes: Uint8Array, start: number, end: number): void {
    try {
      this.sink.data(bytes, start, end);
    } catch (error) {
      this.#host.fault(this, error);
    }
  }

  /** Content was read into the room that the sink gave. */
  receiveDirectly(count: number): void {
    try {
      this.sink.directFilled(count);
    } catch (error) {
      this.#host.fault(this, error);
    }
  }

  /** The peer ended its side. */
  remoteEnd(): void {
    if (this.#closed || this.#endIsDelivered) return;
    this.remoteEnded = true;
    this.#endIsDelivered = true;
    try {
      this.sink.end();
    } catch (error) {
      this.#host.fault(this, error);
    }
  }

  /** The peer, or its fault, ended the stream. */
  remoteReset(): void {
    if (this.#closed) return;
    this.close();
    try {
      this.sink.reset();
    } catch (error) {
      this.#host.fault(this, error);
    }
  }

  /** Writes as much of the queue as the windows allow, then the end of the stream if that is due. */
  pump(): void {
    const host = this.#host;
    let hasSent = false;
    while (this.#queue.length > 0) {
      const room = Math.min(host.sendWindow, this.sendWindow, host.peerMaxFrameBytes);
      if (room <= 0 || host.output.pendingBytes > MAX_PENDING_BYTES) return this.#block(hasSent);
      this.stalledSince = 0;
      if (this.#writeData(room)) return;
      hasSent = true;
    }
    if (host.blocked.size > 0) host.blocked.delete(this);
    this.stalledSince = 0;
    if (this.#trailers !== undefined) {
      this.#writeHeaders(this.#trailers, FrameFlag.END_STREAM);
      this.#trailers = undefined;
      this.#localEnd();
    } else if (this.#endsPlainly) {
      host.output.frameHead({
        type: FrameType.DATA,
        flags: FrameFlag.END_STREAM,
        streamId: this.id,
      }, 0);
      this.#localEnd();
    } else if (this.#wantsDrain) {
      this.#wantsDrain = false;
      try {
        this.onDrain();
      } catch (error) {
        host.fault(this, error);
      }
    }
  }

  /** Called by the connection when the stream leaves its table; what is queued will not be sent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#host.blocked.delete(this);
    for (const part of this.#queue) {
      if (part.onSent !== undefined) this.#host.output.afterWrite(part.onSent);
    }
    this.#queue.length = 0;
    this.sink.dispose();
  }

  get #isEnding(): boolean {
    return this.#trailers !== undefined || this.#endsPlainly;
  }

  #enqueue(parts: readonly Uint8Array[], onSent: (() => void) | undefined): void {
    let last = parts.length - 1;
    while (last >= 0 && parts[last]!.length === 0) last--;
    for (let index = 0; index <= last; index++) {
      const bytes = parts[index]!;
      if (bytes.length > 0) {
        this.#queue.push({ bytes, onSent: index === last ? onSent : undefined });
      }
    }
    if (last >= 0 || onSent === undefined) return;
    // No bytes at all: sent when what is queued before is sent.
    if (this.#queue.length === 0) this.#host.output.afterWrite(onSent);
    else this.#queue.push({ bytes: new Uint8Array(0), onSent });
  }

  /** The usual case: everything fits into one frame now. */
  #sendAtOnce(parts: readonly Uint8Array[], onSent: (() => void) | undefined): boolean {
    const host = this.#host;
    const { output } = host;
    let byteSize = 0;
    for (const part of parts) byteSize += part.length;
    const room = Math.min(host.sendWindow, this.sendWindow, host.peerMaxFrameBytes);
    if (byteSize > room || output.pendingBytes > MAX_PENDING_BYTES) return false;
    if (byteSize > 0) {
      output.frameHead({ type: FrameType.DATA, flags: 0, streamId: this.id }, byteSize);
      for (const part of parts) output.payload(part);
      this.#spend(byteSize);
    }
    if (onSent !== undefined) output.afterWrite(onSent);
    return true;
  }

  #spend(byteSize: number): void {
    this.sendWindow -= byteSize;
    this.#host.sendWindow -= byteSize;
    this.#host.noteSent();
  }

  #block(hasSent: boolean): void {
    // Re-inserting puts a stream that had its turn behind the others.
    if (hasSent) this.#host.blocked.delete(this);
    this.#host.blocked.add(this);
    if (this.stalledSince === 0) this.stalledSince = this.#host.now;
  }

  /** One DATA frame of at most `room` bytes; true when it ended the stream. */
  #writeData(room: number): boolean {
    const { output } = this.#host;
    const queue = this.#queue;
    let byteSize = 0;
    let wholeCount = 0;
    while (wholeCount < queue.length && byteSize + queue[wholeCount]!.bytes.length <= room) {
      byteSize += queue[wholeCount++]!.bytes.length;
    }
    let split: Uint8Array | undefined;
    const next = queue[wholeCount];
    if (
      next !== undefined && byteSize < room &&
      (wholeCount === 0 || next.bytes.length >= LARGE_PART_BYTES)
    ) {
      split = next.bytes.subarray(0, room - byteSize);
      next.bytes = next.bytes.subarray(split.length);
      byteSize += split.length;
    }
    const isLast = this.#endsPlainly && split === undefined && wholeCount === queue.length;
    const flags = isLast ? FrameFlag.END_STREAM : 0;
    output.frameHead({ type: FrameType.DATA, flags, streamId: this.id }, byteSize);
    for (let index = 0; index < wholeCount; index++) {
      const part = queue[index]!;
      output.payload(part.bytes);
      if (part.onSent !== undefined) output.afterWrite(part.onSent);
    }
    if (wholeCount === queue.length) queue.length = 0;
    else queue.splice(0, wholeCount);
    if (split !== undefined) output.payload(split);
    this.#spend(byteSize);
    if (isLast) this.#localEnd();
    return isLast;
  }

  /** A block that is larger than the peer's frames goes on in CONTINUATION frames. */
  #writeHeaders(block: Uint8Array, flags: number): void {
    const { output, peerMaxFrameBytes } = this.#host;
    this.#host.noteSent();
    const streamId = this.id;
    if (block.length <= peerMaxFrameBytes) {
      return output.frame({
        type: FrameType.HEADERS,
        flags: flags | FrameFlag.END_HEADERS,
        streamId,
      }, block);
    }
    for (let at = 0; at < block.length; at += peerMaxFrameBytes) {
      const piece = block.subarray(at, at + peerMaxFrameBytes);
      const endFlag = at + piece.length === block.length ? FrameFlag.END_HEADERS : 0;
      const type = at === 0 ? FrameType.HEADERS : FrameType.CONTINUATION;
      output.frame({ type, flags: endFlag | (at === 0 ? flags : 0), streamId }, piece);
    }
  }

  #localEnd(): void {
    if (this.remoteEnded) this.#host.finished(this);
    else this.#host.abandon(this, ErrorCode.NO_ERROR);
  }
}
