/** Frame types (RFC 9113, 6). */
export const FrameType = {
  DATA: 0,
  HEADERS: 1,
  PRIORITY: 2,
  RST_STREAM: 3,
  SETTINGS: 4,
  PUSH_PROMISE: 5,
  PING: 6,
  GOAWAY: 7,
  WINDOW_UPDATE: 8,
  CONTINUATION: 9,
} as const;

/** Frame flags; ACK and END_STREAM share a bit. */
export const FrameFlag = {
  ACK: 0x1,
  END_STREAM: 0x1,
  END_HEADERS: 0x4,
  PADDED: 0x8,
  PRIORITY: 0x20,
} as const;

/** Error codes (RFC 9113, 7). */
export const ErrorCode = {
  NO_ERROR: 0,
  PROTOCOL_ERROR: 1,
  INTERNAL_ERROR: 2,
  FLOW_CONTROL_ERROR: 3,
  STREAM_CLOSED: 5,
  FRAME_SIZE_ERROR: 6,
  REFUSED_STREAM: 7,
  CANCEL: 8,
  COMPRESSION_ERROR: 9,
  ENHANCE_YOUR_CALM: 11,
} as const;

/** Setting identifiers (RFC 9113, 6.5.2). */
export const Setting = {
  ENABLE_PUSH: 2,
  MAX_CONCURRENT_STREAMS: 3,
  INITIAL_WINDOW_SIZE: 4,
  MAX_FRAME_SIZE: 5,
  MAX_HEADER_LIST_SIZE: 6,
} as const;

export const FRAME_HEAD_BYTES = 9;
export const DEFAULT_WINDOW_BYTES = 65_535;
export const MAX_WINDOW_BYTES = 2 ** 31 - 1;
export const MAX_STREAM_ID = 2 ** 31 - 1;
export const MIN_MAX_FRAME_BYTES = 16_384;
export const MAX_MAX_FRAME_BYTES = 16_777_215;

/** What a client sends first. */
export const PREFACE_TEXT = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
export const PREFACE_BYTES = 24;

/** A fault of the peer that ends the connection, with the code for GOAWAY. */
export class Http2Error extends Error {
  override readonly name = "Http2Error";
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** A frame whose payload lies at `bytes[start, end)`; the object and the bytes are reused for the next frame. */
export interface Frame {
  type: number;
  flags: number;
  streamId: number;
  bytes: Uint8Array;
  start: number;
  end: number;
}

/** Reads 32 bits, big endian, unsigned. */
export function readUint32(bytes: Uint8Array, at: number): number {
  return ((bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!) >>>
    0;
}

/** Reads 31 bits, the reserved bit dropped. */
export function readUint31(bytes: Uint8Array, at: number): number {
  return readUint32(bytes, at) & 0x7fffffff;
}

/** Four bytes, big endian. */
export function encodeUint32(value: number): Uint8Array<ArrayBuffer> {
  return Uint8Array.of(value >>> 24, value >>> 16, value >>> 8, value);
}

/** Payload of a SETTINGS frame. */
export function encodeSettings(
  settings: readonly (readonly [number, number])[],
): Uint8Array<ArrayBuffer> {
  const payload = new Uint8Array(6 * settings.length);
  const view = new DataView(payload.buffer);
  settings.forEach(([identifier, value], index) => {
    view.setUint16(6 * index, identifier);
    view.setUint32(6 * index + 2, Math.min(value, 2 ** 32 - 1));
  });
  return payload;
}

/** Payload of a GOAWAY frame. */
export function encodeGoaway(
  lastStreamId: number,
  { code, debug = "" }: { code: number; debug?: string },
): Uint8Array<ArrayBuffer> {
  const text = new TextEncoder().encode(debug);
  const payload = new Uint8Array(8 + text.length);
  const view = new DataView(payload.buffer);
  view.setUint32(0, lastStreamId);
  view.setUint32(4, code);
  payload.set(text, 8);
  return payload;
}
