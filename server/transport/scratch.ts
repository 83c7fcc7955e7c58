/** Size of every scratch buffer. */
export const SCRATCH_BYTES = 65_536;

const MAX_IDLE = 64;
const idle: Uint8Array[] = [];

/** An output buffer for a moment; shared by all connections, so that an idle one holds none. */
export function takeScratch(): Uint8Array {
  return idle.pop() ?? new Uint8Array(SCRATCH_BYTES);
}

/** Gives a scratch buffer back when nothing reads from it any more. */
export function releaseScratch(buffer: Uint8Array): void {
  if (buffer.length === SCRATCH_BYTES && idle.length < MAX_IDLE) idle.push(buffer);
}
