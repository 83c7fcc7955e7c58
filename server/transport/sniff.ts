import type { Connection } from "./connection.ts";
import { PREFACE_BYTES, PREFACE_TEXT } from "./http2_frames.ts";

/** What the first bytes of a connection show. */
export interface SniffedProtocol {
  readonly isHttp2: boolean;
  /** The bytes read so far; they belong to the protocol. */
  readonly first: Uint8Array;
}

const FIRST_READ_BYTES = 4_096;

/**
 * Reads until it is clear whether the peer speaks HTTP/2: only the whole preface counts, anything else goes to the
 * HTTP/1.1 parser. Undefined when the peer ended without a byte.
 */
export async function sniffProtocol(connection: Connection): Promise<SniffedProtocol | undefined> {
  const buffer = new Uint8Array(FIRST_READ_BYTES);
  let filled = 0;
  while (filled < PREFACE_BYTES) {
    const count = await connection.read(buffer.subarray(filled));
    if (count === null) {
      return filled === 0 ? undefined : { isHttp2: false, first: buffer.subarray(0, filled) };
    }
    filled += count;
    if (!isPrefacePart(buffer, Math.min(filled, PREFACE_BYTES))) {
      return { isHttp2: false, first: buffer.subarray(0, filled) };
    }
  }
  return { isHttp2: true, first: buffer.subarray(0, filled) };
}

function isPrefacePart(buffer: Uint8Array, length: number): boolean {
  for (let at = 0; at < length; at++) {
    if (buffer[at] !== PREFACE_TEXT.charCodeAt(at)) return false;
  }
  return true;
}
