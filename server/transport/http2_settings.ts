import {
  DEFAULT_WINDOW_BYTES,
  ErrorCode,
  type Frame,
  Http2Error,
  MAX_MAX_FRAME_BYTES,
  MAX_WINDOW_BYTES,
  MIN_MAX_FRAME_BYTES,
  readUint32,
  Setting,
} from "./http2_frames.ts";

/** More than this in one frame keeps other streams waiting. */
const MAX_SENT_FRAME_BYTES = 1_048_576;

/** What the peer allows. */
export class PeerSettings {
  initialWindowBytes = DEFAULT_WINDOW_BYTES;
  maxFrameBytes = MIN_MAX_FRAME_BYTES;

  /** Applies the payload of a SETTINGS frame. Throws Http2Error. */
  apply(frame: Frame): void {
    for (let at = frame.start; at < frame.end; at += 6) {
      const identifier = (frame.bytes[at]! << 8) | frame.bytes[at + 1]!;
      this.#set(identifier, readUint32(frame.bytes, at + 2));
    }
  }

  #set(identifier: number, value: number): void {
    switch (identifier) {
      case Setting.ENABLE_PUSH:
        if (value > 1) throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is not 0 or 1");
        return;
      case Setting.INITIAL_WINDOW_SIZE:
        if (value > MAX_WINDOW_BYTES) {
          throw new Http2Error(ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE is too large");
        }
        this.initialWindowBytes = value;
        return;
      case Setting.MAX_FRAME_SIZE:
        if (value < MIN_MAX_FRAME_BYTES || value > MAX_MAX_FRAME_BYTES) {
          throw new Http2Error(ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE is out of range");
        }
        this.maxFrameBytes = Math.min(value, MAX_SENT_FRAME_BYTES);
    }
  }
}
