import {
  encodeUint32,
  FRAME_HEAD_BYTES,
  FrameFlag,
  FrameType,
  PREFACE_TEXT,
  readUint31,
  readUint32,
} from "../../server/transport/http2_frames.ts";
import { encodeHeaderBlock, HpackDecoder } from "../../server/transport/hpack.ts";
import { latin1 } from "./memory_connection.ts";

/** A frame as it came from the server. */
export interface PeerFrame {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
  readonly payload: Uint8Array;
  /** Decoded fields of HEADERS. */
  readonly fields?: readonly (readonly [string, string])[];
}

export const PREFACE: Uint8Array<ArrayBuffer> = latin1(PREFACE_TEXT);

/** Bytes of one frame. */
export function frame(
  type: number,
  { flags = 0, streamId = 0, payload = new Uint8Array(0) }: {
    flags?: number;
    streamId?: number;
    payload?: Uint8Array;
  } = {},
): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(FRAME_HEAD_BYTES + payload.length);
  bytes.set(encodeUint32(payload.length).subarray(1));
  bytes[3] = type;
  bytes[4] = flags;
  bytes.set(encodeUint32(streamId), 5);
  bytes.set(payload, FRAME_HEAD_BYTES);
  return bytes;
}

export function concat(...parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

type Fields = readonly (readonly [string, string])[];

export const GRPC_FIELDS: Fields = [
  [":method", "POST"],
  [":scheme", "http"],
  [":path", "/test.Service/Call"],
  [":authority", "localhost"],
  ["content-type", "application/grpc"],
  ["te", "trailers"],
];

export const POST_FIELDS: Fields = [
  [":method", "POST"],
  [":scheme", "http"],
  [":path", "/echo"],
  [":authority", "localhost"],
];

export function headersFrame(
  streamId: number,
  fields: Fields,
  flags: number = FrameFlag.END_HEADERS,
): Uint8Array<ArrayBuffer> {
  return frame(FrameType.HEADERS, { streamId, flags, payload: encodeHeaderBlock(fields) });
}

export function dataFrame(
  streamId: number,
  payload: Uint8Array,
  flags = 0,
): Uint8Array<ArrayBuffer> {
  return frame(FrameType.DATA, { streamId, flags, payload });
}

export function settingsFrame(
  ...settings: readonly (readonly [number, number])[]
): Uint8Array<ArrayBuffer> {
  const payload = concat(
    ...settings.map(([identifier, value]) =>
      concat(encodeUint32(identifier).subarray(2), encodeUint32(value))
    ),
  );
  return frame(FrameType.SETTINGS, { payload });
}

export function windowUpdate(streamId: number, increment: number): Uint8Array<ArrayBuffer> {
  return frame(FrameType.WINDOW_UPDATE, { streamId, payload: encodeUint32(increment) });
}

/** A gRPC message with its prefix. */
export function message(content: Uint8Array, flag = 0): Uint8Array<ArrayBuffer> {
  return concat(Uint8Array.of(flag), encodeUint32(content.length), content);
}

/** Cuts a server's output into frames; keeps what is incomplete for the next call. */
export class FrameParser {
  #rest: Uint8Array = new Uint8Array(0);
  readonly #decoder = new HpackDecoder({ maxListBytes: Infinity, maxFieldCount: Infinity });

  push(bytes: Uint8Array): PeerFrame[] {
    const all = concat(this.#rest, bytes);
    const frames: PeerFrame[] = [];
    let at = 0;
    while (all.length - at >= FRAME_HEAD_BYTES) {
      const byteSize = readUint32(all, at) >>> 8;
      const end = at + FRAME_HEAD_BYTES + byteSize;
      if (end > all.length) break;
      frames.push(this.#frame(all, { at, end }));
      at = end;
    }
    this.#rest = all.slice(at);
    return frames;
  }

  #frame(all: Uint8Array, { at, end }: { at: number; end: number }): PeerFrame {
    const type = all[at + 3]!;
    const payload = all.slice(at + FRAME_HEAD_BYTES, end);
    const plain = { type, flags: all[at + 4]!, streamId: readUint31(all, at + 5), payload };
    if (type !== FrameType.HEADERS) return plain;
    return { ...plain, fields: this.#decoder.decode(payload).fields };
  }
}

/** Code of a GOAWAY or RST_STREAM frame. */
export function errorCode(found: PeerFrame): number {
  return readUint32(found.payload, found.type === FrameType.GOAWAY ? 4 : 0);
}
