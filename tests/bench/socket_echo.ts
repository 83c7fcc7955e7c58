import { join } from "node:path";
import { writeAll } from "./http_load.ts";
import { measureCalls, type Rate } from "./measure_calls.ts";

/** A Python child that echoes messages through a unix socket: the least that a model in another process costs. */
export class SocketEcho implements AsyncDisposable {
  readonly #child: Deno.ChildProcess;
  readonly #connection: Deno.UnixConn;
  readonly #waiting: (() => void)[] = [];
  /** Bytes of the answers that are still to come, the first one in front. */
  readonly #left: number[] = [];
  #sending: Promise<void> = Promise.resolve();

  private constructor(child: Deno.ChildProcess, connection: Deno.UnixConn) {
    this.#child = child;
    this.#connection = connection;
    void this.#receive();
  }

  /** Starts the child; its socket is made in `directory`. */
  static async start(directory: string): Promise<SocketEcho> {
    const path = join(directory, `echo-${crypto.randomUUID().slice(0, 8)}.sock`);
    using listener = Deno.listen({ transport: "unix", path });
    const script = join(import.meta.dirname!, "socket_echo.py");
    const child = new Deno.Command("python3", { args: [script, path], stdin: "null" }).spawn();
    return new SocketEcho(child, await listener.accept());
  }

  /** Rate and times of messages of one size, so many in flight. */
  measure(byteSize: number, concurrency: number, seconds: number): Promise<Rate> {
    const message = new Uint8Array(4 + byteSize);
    new DataView(message.buffer).setUint32(0, byteSize, true);
    return measureCalls(() => this.#call(message), concurrency, seconds);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#connection.close();
    await this.#child.status;
  }

  #call(message: Uint8Array): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    this.#left.push(message.length);
    this.#sending = this.#sending.then(() => writeAll(this.#connection, message));
    return promise;
  }

  async #receive(): Promise<void> {
    const buffer = new Uint8Array(1024 * 1024);
    for (;;) {
      let count = await this.#connection.read(buffer).catch(() => null) ?? 0;
      if (count === 0) return;
      while (count > 0) {
        const taken = Math.min(count, this.#left[0]!);
        count -= taken;
        this.#left[0]! -= taken;
        if (this.#left[0] !== 0) continue;
        this.#left.shift();
        this.#waiting.shift()!();
      }
    }
  }
}
