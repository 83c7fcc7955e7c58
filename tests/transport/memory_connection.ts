import type { Connection } from "../../server/transport/connection.ts";

/** A connection without a socket: a test feeds its input and looks at its output. */
export class MemoryConnection implements Connection {
  /** Largest count that one read or write takes. */
  maxReadBytes = Infinity;
  maxWriteBytes = Infinity;
  /** While set, writes wait, as if the peer did not read. */
  isBlocked = false;
  closed = false;
  writeClosed = false;
  writeCount = 0;
  readonly #input: Uint8Array[] = [];
  #inputEnded = false;
  #inputError: Error | undefined;
  #wakeReader: (() => void) | undefined;
  #wakeWriter: (() => void) | undefined;
  readonly #output: Uint8Array[] = [];

  /** Bytes that the code under test will read. */
  feed(bytes: Uint8Array | string): void {
    const chunk = typeof bytes === "string" ? latin1(bytes) : bytes;
    if (chunk.length > 0) this.#input.push(chunk);
    this.#wake();
  }

  /** The peer ends its output. */
  feedEnd(): void {
    this.#inputEnded = true;
    this.#wake();
  }

  /** The peer resets the connection. */
  feedError(): void {
    this.#inputError = new Error("Connection reset by peer");
    this.#wake();
  }

  /** Lets waiting writes go on. */
  unblock(): void {
    this.isBlocked = false;
    this.#wakeWriter?.();
  }

  /** Everything written so far, taken out. */
  takeOutput(): Uint8Array {
    const parts = this.#output.splice(0);
    const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  }

  takeText(): string {
    return fromLatin1(this.takeOutput());
  }

  async read(buffer: Uint8Array): Promise<number | null> {
    while (this.#input.length === 0) {
      if (this.closed) throw new Error("Connection is closed");
      if (this.#inputError !== undefined) throw this.#inputError;
      if (this.#inputEnded) return null;
      await new Promise<void>((resolve) => this.#wakeReader = resolve);
    }
    const chunk = this.#input[0]!;
    const count = Math.min(chunk.length, buffer.length, this.maxReadBytes);
    buffer.set(chunk.subarray(0, count));
    if (count === chunk.length) this.#input.shift();
    else this.#input[0] = chunk.subarray(count);
    return count;
  }

  async write(bytes: Uint8Array): Promise<number> {
    this.writeCount++;
    await Promise.resolve();
    while (this.isBlocked && !this.closed) {
      await new Promise<void>((resolve) => this.#wakeWriter = resolve);
    }
    if (this.closed || this.writeClosed) throw new Error("Connection is closed");
    const count = Math.min(bytes.length, this.maxWriteBytes);
    this.#output.push(bytes.slice(0, count));
    return count;
  }

  closeWrite(): Promise<void> {
    this.writeClosed = true;
    return Promise.resolve();
  }

  close(): void {
    if (this.closed) throw new Error("Connection was closed twice");
    this.closed = true;
    this.#wake();
    this.#wakeWriter?.();
  }

  #wake(): void {
    const wake = this.#wakeReader;
    this.#wakeReader = undefined;
    wake?.();
  }
}

/** Lets everything run that waits for no timer. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 200; turn++) await Promise.resolve();
}

export function latin1(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

export function fromLatin1(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}
