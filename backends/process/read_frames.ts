import { type Frame, FrameReader } from "./frame.ts";

/** The part of a connection that is read from. */
export interface ByteSource {
  read(into: Uint8Array): Promise<number | null>;
}

/**
 * Hands frames on until the connection ends.
 * @returns undefined at the end of the connection; else why no more is read: what is no frame, or what `take` threw.
 */
export async function readFrames(
  source: ByteSource,
  take: (frame: Frame) => void,
): Promise<unknown> {
  const reader = new FrameReader();
  for (;;) {
    let count: number | null;
    try {
      count = await source.read(reader.room());
    } catch {
      return undefined;
    }
    if (count === null) return undefined;
    try {
      reader.received(count);
      for (let frame = reader.next(); frame !== undefined; frame = reader.next()) take(frame);
    } catch (reason) {
      return reason ?? "unknown";
    }
  }
}
