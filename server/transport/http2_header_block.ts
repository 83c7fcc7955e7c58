import {
  ErrorCode,
  type Frame,
  FrameFlag,
  FrameType,
  Http2Error,
  readUint31,
} from "./http2_frames.ts";
import type { TransportLimits } from "./limits.ts";

/** A header block that arrived as a whole. `bytes` are only valid during the call. */
export interface HeaderBlock {
  readonly streamId: number;
  readonly endsStream: boolean;
  /** The priority fields name the stream itself. */
  readonly dependsOnItself: boolean;
  readonly bytes: Uint8Array;
}

interface PartialBlock {
  readonly streamId: number;
  readonly endsStream: boolean;
  readonly dependsOnItself: boolean;
  readonly parts: Uint8Array[];
  byteSize: number;
}

/** Puts header blocks together from HEADERS and CONTINUATION frames. */
export class HeaderBlockAssembler {
  readonly #limits: TransportLimits;
  #partial: PartialBlock | undefined;

  constructor(limits: TransportLimits) {
    this.#limits = limits;
  }

  /** A block has begun and not ended. */
  get isOpen(): boolean {
    return this.#partial !== undefined;
  }

  /** Whether `frame` may come now: inside a block only its own CONTINUATION may. */
  accepts(frame: Frame): boolean {
    if (this.#partial === undefined) return frame.type !== FrameType.CONTINUATION;
    return frame.type === FrameType.CONTINUATION && frame.streamId === this.#partial.streamId;
  }

  /** A HEADERS frame; returns the block when it is complete. Throws Http2Error. */
  begin(frame: Frame): HeaderBlock | undefined {
    const { bytes, flags, streamId } = frame;
    let { start, end } = frame;
    const padded = (flags & FrameFlag.PADDED) !== 0;
    const hasPriority = (flags & FrameFlag.PRIORITY) !== 0;
    if (end - start < (padded ? 1 : 0) + (hasPriority ? 5 : 0)) {
      throw new Http2Error(ErrorCode.FRAME_SIZE_ERROR, "HEADERS frame is too short");
    }
    if (padded) end -= bytes[start++]!;
    let dependsOnItself = false;
    if (hasPriority) {
      dependsOnItself = readUint31(bytes, start) === streamId;
      start += 5;
    }
    if (end < start) {
      throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "Padding is longer than its frame");
    }
    const endsStream = (flags & FrameFlag.END_STREAM) !== 0;
    this.#checkSize(end - start);
    if ((flags & FrameFlag.END_HEADERS) !== 0) {
      return { streamId, endsStream, dependsOnItself, bytes: bytes.subarray(start, end) };
    }
    const parts = [bytes.slice(start, end)];
    this.#partial = { streamId, endsStream, dependsOnItself, parts, byteSize: end - start };
    return undefined;
  }

  /** A CONTINUATION frame that `accepts` let through; returns the block when it is complete. Throws Http2Error. */
  append(frame: Frame): HeaderBlock | undefined {
    const partial = this.#partial!;
    partial.byteSize += frame.end - frame.start;
    this.#checkSize(partial.byteSize);
    if (partial.parts.length > this.#limits.maxContinuationCount) {
      throw new Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "Header block has too many frames");
    }
    partial.parts.push(frame.bytes.slice(frame.start, frame.end));
    if ((frame.flags & FrameFlag.END_HEADERS) === 0) return undefined;
    this.#partial = undefined;
    const bytes = new Uint8Array(partial.byteSize);
    let at = 0;
    for (const part of partial.parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return { ...partial, bytes };
  }

  #checkSize(byteSize: number): void {
    if (byteSize > this.#limits.maxHeaderListBytes) {
      throw new Http2Error(ErrorCode.ENHANCE_YOUR_CALM, "Header block is too large");
    }
  }
}
