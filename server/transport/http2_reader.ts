import type { Connection } from "./connection.ts";
import {
  ErrorCode,
  type Frame,
  FRAME_HEAD_BYTES,
  FrameFlag,
  FrameType,
  Http2Error,
  PREFACE_BYTES,
  PREFACE_TEXT,
  readUint31,
} from "./http2_frames.ts";

const FIRST_BYTES = 8_192;
/** A connection that fills its buffer reads more at a time, up to this. */
const BUSY_BYTES = 262_144;
/** More than this left of a DATA frame is read straight into the message. */
const DIRECT_READ_BYTES = 32_768;

/** What a frame reader hands its frames to. */
export interface FrameSink {
  /** A whole frame other than DATA; the frame object is only valid during the call. */
  frame(frame: Frame): void;
  /** A DATA frame begins; `contentBytes` of its payload are not padding. */
  dataStart(frame: Frame, contentBytes: number): void;
  data(bytes: Uint8Array, start: number, end: number): void;
  dataEnd(): void;
  /** Room of the current DATA frame's message for a read without a copy. */
  directRoom(wanted: number): Uint8Array | undefined;
  directFilled(count: number): void;
  /** A promise to wait for before more is read: the peer does not read what it is sent. */
  backPressure(): Promise<void> | undefined;
  /** Bytes came. */
  received(): void;
}

/** Bounds of frames. */
export interface FrameLimits {
  readonly maxFrameBytes: number;
  /** Largest frame other than DATA, which has to be held as a whole. */
  readonly maxHeldFrameBytes: number;
}

/** Cuts the input of a connection into frames. */
export class FrameReader {
  readonly #connection: Connection;
  readonly #sink: FrameSink;
  readonly #limits: FrameLimits;
  readonly #frame: Frame;
  #buffer = new Uint8Array(FIRST_BYTES);
  #start = 0;
  #end = 0;
  #prefaceLeft = PREFACE_BYTES;
  /** Of the current DATA frame. */
  #contentLeft = 0;
  #paddingLeft = 0;
  #inData = false;
  /** Of a frame of unknown type. */
  #skipLeft = 0;

  constructor(connection: Connection, { sink, limits }: { sink: FrameSink; limits: FrameLimits }) {
    this.#connection = connection;
    this.#sink = sink;
    this.#limits = limits;
    this.#frame = { type: 0, flags: 0, streamId: 0, bytes: this.#buffer, start: 0, end: 0 };
  }

  /** Reads until the input ends. Rejects with Http2Error, with what the sink throws, or when the connection breaks. */
  async run(first: Uint8Array): Promise<void> {
    if (first.length > this.#buffer.length) this.#buffer = new Uint8Array(first.length);
    this.#buffer.set(first);
    this.#end = first.length;
    for (;;) {
      this.#parse();
      this.#compact();
      const wait = this.#sink.backPressure();
      if (wait !== undefined) await wait;
      if (!await this.#read()) return;
      this.#sink.received();
    }
  }

  /** Reads once; false at the end of input. */
  async #read(): Promise<boolean> {
    if (this.#contentLeft > DIRECT_READ_BYTES && this.#start === this.#end) {
      const room = this.#sink.directRoom(this.#contentLeft);
      if (room !== undefined) return await this.#readDirect(room);
    }
    const count = await this.#connection.read(this.#buffer.subarray(this.#end));
    if (count === null) return false;
    this.#end += count;
    if (this.#end === this.#buffer.length && this.#buffer.length < BUSY_BYTES) {
      this.#resize(2 * this.#buffer.length);
    }
    return true;
  }

  async #readDirect(room: Uint8Array): Promise<boolean> {
    let count: number | null = null;
    try {
      count = await this.#connection.read(room);
    } finally {
      this.#contentLeft -= count ?? 0;
      this.#sink.directFilled(count ?? 0);
    }
    if (count === null) return false;
    this.#endDataIfDone();
    return true;
  }

  #parse(): void {
    if (this.#prefaceLeft > 0) this.#parsePreface();
    while (this.#end > this.#start && this.#prefaceLeft === 0) {
      if (this.#inData) this.#parseData();
      else if (this.#skipLeft > 0) this.#skip();
      else if (!this.#parseFrame()) return;
    }
  }

  #parsePreface(): void {
    while (this.#prefaceLeft > 0 && this.#start < this.#end) {
      const wanted = PREFACE_TEXT.charCodeAt(PREFACE_BYTES - this.#prefaceLeft);
      if (this.#buffer[this.#start] !== wanted) {
        throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "Preface is malformed");
      }
      this.#start++;
      this.#prefaceLeft--;
    }
  }

  #parseData(): void {
    const stop = Math.min(this.#end, this.#start + this.#contentLeft);
    if (stop > this.#start) {
      const start = this.#start;
      this.#contentLeft -= stop - start;
      this.#start = stop;
      this.#sink.data(this.#buffer, start, stop);
    }
    if (this.#contentLeft === 0 && this.#paddingLeft > 0) {
      const skipped = Math.min(this.#paddingLeft, this.#end - this.#start);
      this.#start += skipped;
      this.#paddingLeft -= skipped;
    }
    this.#endDataIfDone();
  }

  #endDataIfDone(): void {
    if (!this.#inData || this.#contentLeft > 0 || this.#paddingLeft > 0) return;
    this.#inData = false;
    this.#sink.dataEnd();
  }

  #skip(): void {
    const skipped = Math.min(this.#skipLeft, this.#end - this.#start);
    this.#start += skipped;
    this.#skipLeft -= skipped;
  }

  /** One frame, or the head of a DATA frame; false when more input is needed. */
  #parseFrame(): boolean {
    const start = this.#start;
    const available = this.#end - start;
    if (available < FRAME_HEAD_BYTES) return false;
    const buffer = this.#buffer;
    const byteSize = (buffer[start]! << 16) | (buffer[start + 1]! << 8) | buffer[start + 2]!;
    if (byteSize > this.#limits.maxFrameBytes) {
      throw new Http2Error(ErrorCode.FRAME_SIZE_ERROR, `Frame of ${byteSize} bytes is too large`);
    }
    const frame = this.#frame;
    frame.type = buffer[start + 3]!;
    frame.flags = buffer[start + 4]!;
    frame.streamId = readUint31(buffer, start + 5);
    frame.bytes = buffer;
    frame.start = frame.end = start + FRAME_HEAD_BYTES;
    if (frame.type === FrameType.DATA) return this.#startData(byteSize, available);
    if (frame.type > FrameType.CONTINUATION) {
      this.#start += FRAME_HEAD_BYTES;
      this.#skipLeft = byteSize;
      this.#sink.frame(frame);
      return true;
    }
    return this.#wholeFrame(byteSize, available);
  }

  #startData(byteSize: number, available: number): boolean {
    const frame = this.#frame;
    const padded = (frame.flags & FrameFlag.PADDED) !== 0 ? 1 : 0;
    if (available < FRAME_HEAD_BYTES + padded && byteSize > 0) return false;
    const padding = padded === 1 && byteSize > 0 ? frame.bytes[frame.start]! : 0;
    const contentBytes = byteSize - padded - padding;
    if (contentBytes < 0) {
      throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "Padding is longer than its frame");
    }
    frame.end = frame.start + byteSize;
    this.#start += FRAME_HEAD_BYTES + padded;
    this.#contentLeft = contentBytes;
    this.#paddingLeft = padding;
    this.#inData = true;
    this.#sink.dataStart(frame, contentBytes);
    this.#endDataIfDone();
    return true;
  }

  #wholeFrame(byteSize: number, available: number): boolean {
    const wholeBytes = FRAME_HEAD_BYTES + byteSize;
    if (available < wholeBytes) {
      if (byteSize > this.#limits.maxHeldFrameBytes) {
        throw new Http2Error(
          ErrorCode.ENHANCE_YOUR_CALM,
          `Frame of ${byteSize} bytes is too large`,
        );
      }
      if (wholeBytes > this.#buffer.length) this.#resize(wholeBytes + FIRST_BYTES);
      return false;
    }
    const frame = this.#frame;
    frame.end = frame.start + byteSize;
    this.#start = frame.end;
    this.#sink.frame(frame);
    return true;
  }

  #compact(): void {
    if (this.#start === this.#end) {
      this.#start = this.#end = 0;
    } else if (this.#start > 0 && this.#buffer.length - this.#end < this.#buffer.length >> 2) {
      this.#buffer.copyWithin(0, this.#start, this.#end);
      this.#end -= this.#start;
      this.#start = 0;
    }
  }

  #resize(byteSize: number): void {
    const larger = new Uint8Array(byteSize);
    larger.set(this.#buffer.subarray(this.#start, this.#end));
    this.#end -= this.#start;
    this.#start = 0;
    this.#buffer = larger;
  }
}
