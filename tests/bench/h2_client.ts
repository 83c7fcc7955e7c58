import { writeAll } from "./http_load.ts";

const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
// Frame types and flags.
const DATA = 0;
const HEADERS = 1;
const RST_STREAM = 3;
const SETTINGS = 4;
const PING = 6;
const GOAWAY = 7;
const WINDOW_UPDATE = 8;
const END_STREAM = 1;
const ACK = 1;
const END_HEADERS = 4;
const WINDOW = 1 << 30;
// Settings.
const INITIAL_WINDOW_SIZE = 4;
const MAX_FRAME_SIZE = 5;

/** What happens on a stream of the client. */
export interface StreamEvents {
  onData(bytes: Uint8Array): void;
  onEnd(): void;
  onFailure(text: string): void;
}

interface OpenStream extends StreamEvents {
  /** Bytes that may still be sent. */
  window: number;
  /** What waits for window, and whether it ends the stream. */
  waiting: Uint8Array[];
  endAfter: boolean;
}

/**
 * The least of an HTTP/2 client that a gRPC load needs: requests with a fixed header block, flow control both ways,
 * several streams, one write per turn of the event loop. Response headers are not decoded.
 */
export class H2Client {
  readonly #connection: Deno.Conn;
  readonly #streams = new Map<number, OpenStream>();
  #nextId = 1;
  #window = 65_535;
  #initialWindow = 65_535;
  #maxFrame = 16_384;
  #out: Uint8Array[] = [];
  #isWriting = false;
  #received = 0;

  private constructor(connection: Deno.Conn) {
    this.#connection = connection;
  }

  static async connect(port: number): Promise<H2Client> {
    const connection = await Deno.connect({ hostname: "127.0.0.1", port });
    connection.setNoDelay(true);
    const client = new H2Client(connection);
    const settings = new Uint8Array(12);
    const view = new DataView(settings.buffer);
    view.setUint16(0, INITIAL_WINDOW_SIZE);
    view.setUint32(2, WINDOW);
    view.setUint16(6, MAX_FRAME_SIZE);
    view.setUint32(8, 1 << 20);
    client.#out.push(new TextEncoder().encode(PREFACE));
    client.#queue(SETTINGS, 0, 0, settings);
    client.#queue(WINDOW_UPDATE, 0, 0, uint32(WINDOW - 65_535));
    void client.#readLoop();
    return client;
  }

  /** Opens a stream with a header block that was encoded before. */
  open(headerBlock: Uint8Array, events: StreamEvents): number {
    const id = this.#nextId;
    this.#nextId += 2;
    this.#streams.set(id, { ...events, window: this.#initialWindow, waiting: [], endAfter: false });
    this.#queue(HEADERS, END_HEADERS, id, headerBlock);
    return id;
  }

  /** Sends bytes on a stream as far as flow control lets it; the rest follows. */
  send(id: number, bytes: Uint8Array, isLast: boolean): void {
    const stream = this.#streams.get(id);
    if (stream === undefined) return;
    stream.waiting.push(bytes);
    stream.endAfter ||= isLast;
    this.#pump(id, stream);
  }

  close(): void {
    this.#streams.clear();
    this.#connection.close();
  }

  #pump(id: number, stream: OpenStream): void {
    while (stream.waiting.length > 0) {
      const first = stream.waiting[0]!;
      const size = Math.min(first.length, this.#maxFrame, stream.window, this.#window);
      if (size === 0 && first.length > 0) return;
      const isDone = size === first.length;
      if (isDone) stream.waiting.shift();
      else stream.waiting[0] = first.subarray(size);
      const isEnd = isDone && stream.endAfter && stream.waiting.length === 0;
      stream.window -= size;
      this.#window -= size;
      this.#queue(DATA, isEnd ? END_STREAM : 0, id, first.subarray(0, size));
    }
  }

  #queue(type: number, flags: number, id: number, payload: Uint8Array): void {
    const head = new Uint8Array(9);
    const view = new DataView(head.buffer);
    view.setUint32(0, (payload.length << 8) | type);
    head[4] = flags;
    view.setUint32(5, id);
    this.#out.push(head, payload);
    if (!this.#isWriting) {
      this.#isWriting = true;
      queueMicrotask(() => void this.#flush());
    }
  }

  async #flush(): Promise<void> {
    try {
      while (this.#out.length > 0) {
        const parts = this.#out;
        this.#out = [];
        await writeAll(this.#connection, join(parts));
      }
    } catch (reason) {
      this.#fail(String(reason));
    }
    this.#isWriting = false;
  }

  #fail(text: string): void {
    const streams = [...this.#streams.values()];
    this.#streams.clear();
    for (const stream of streams) stream.onFailure(text);
  }

  async #readLoop(): Promise<void> {
    let buffer = new Uint8Array(1 << 20);
    let length = 0;
    try {
      for (;;) {
        const count = await this.#connection.read(buffer.subarray(length));
        if (count === null) return this.#fail("the server closed the connection");
        length += count;
        let at = 0;
        while (length - at >= 9) {
          const size = (buffer[at]! << 16) | (buffer[at + 1]! << 8) | buffer[at + 2]!;
          if (length - at < 9 + size) break;
          this.#onFrame(buffer.subarray(at, at + 9 + size));
          at += 9 + size;
        }
        buffer.copyWithin(0, at, length);
        length -= at;
        if (length === buffer.length) {
          const larger = new Uint8Array(buffer.length * 2);
          larger.set(buffer);
          buffer = larger;
        }
      }
    } catch (reason) {
      if (!(reason instanceof Deno.errors.BadResource)) this.#fail(String(reason));
    }
  }

  #onFrame(frame: Uint8Array): void {
    const view = new DataView(frame.buffer, frame.byteOffset, frame.byteLength);
    const [type, flags, id] = [frame[3]!, frame[4]!, view.getUint32(5) & 0x7fffffff];
    const stream = this.#streams.get(id);
    if (type === DATA) {
      this.#received += frame.length - 9;
      if (this.#received > WINDOW / 2) {
        this.#queue(WINDOW_UPDATE, 0, 0, uint32(this.#received));
        this.#received = 0;
      }
      stream?.onData(frame.subarray(9));
    } else if (type === SETTINGS && (flags & ACK) === 0) {
      this.#onSettings(view);
    } else if (type === PING && (flags & ACK) === 0) {
      this.#queue(PING, ACK, 0, frame.slice(9));
    } else if (type === WINDOW_UPDATE) {
      this.#onWindow(id, view.getUint32(9));
    } else if (type === RST_STREAM) {
      this.#streams.delete(id);
      stream?.onFailure(`stream reset, code ${view.getUint32(9)}`);
    } else if (type === GOAWAY) {
      this.#fail(`connection ended by the server, code ${view.getUint32(13)}`);
    }
    if ((type === DATA || type === HEADERS) && (flags & END_STREAM) !== 0) {
      this.#streams.delete(id);
      stream?.onEnd();
    }
  }

  #onSettings(view: DataView): void {
    for (let at = 9; at + 6 <= view.byteLength; at += 6) {
      const [key, value] = [view.getUint16(at), view.getUint32(at + 2)];
      if (key === MAX_FRAME_SIZE) this.#maxFrame = Math.min(value, 1 << 20);
      if (key === INITIAL_WINDOW_SIZE) {
        for (const stream of this.#streams.values()) stream.window += value - this.#initialWindow;
        this.#initialWindow = value;
      }
    }
    this.#queue(SETTINGS, ACK, 0, new Uint8Array());
    for (const [id, stream] of this.#streams) this.#pump(id, stream);
  }

  #onWindow(id: number, size: number): void {
    if (id === 0) {
      this.#window += size;
      for (const [each, stream] of this.#streams) this.#pump(each, stream);
      return;
    }
    const stream = this.#streams.get(id);
    if (stream === undefined) return;
    stream.window += size;
    this.#pump(id, stream);
  }
}

function uint32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}

function join(parts: readonly Uint8Array[]): Uint8Array {
  let size = 0;
  for (const part of parts) size += part.length;
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
