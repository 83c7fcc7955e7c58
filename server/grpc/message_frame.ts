/** Bytes in front of every message: a flag byte and the length. */
export const PREFIX_BYTES = 5;

/** Writes the prefix of a message of `byteSize` bytes at the start of `target`. */
export function writePrefix(target: Uint8Array, byteSize: number, compressed = false): void {
  target[0] = compressed ? 1 : 0;
  target[1] = byteSize >>> 24;
  target[2] = byteSize >>> 16;
  target[3] = byteSize >>> 8;
  target[4] = byteSize;
}

/** The parts of a frame around an encoded message. */
export function frameOf(message: Uint8Array): Uint8Array[] {
  const prefix = new Uint8Array(PREFIX_BYTES);
  writePrefix(prefix, message.length);
  return message.length === 0 ? [prefix] : [prefix, message];
}
