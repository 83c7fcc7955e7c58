import assert from "node:assert/strict";
import { Http2Connection } from "../../server/transport/http2_connection.ts";
import { FrameType } from "../../server/transport/http2_frames.ts";
import type { RpcStream } from "../../server/transport/transport.ts";
import { concat, FrameParser, type PeerFrame, PREFACE, settingsFrame } from "./http2_peer.ts";
import { MemoryConnection, settle } from "./memory_connection.ts";
import { createTestContext, type TestContext, type TestContextOptions } from "./test_context.ts";

/** A client over memory. */
export class Client {
  readonly connection = new MemoryConnection();
  readonly context: TestContext;
  readonly server: Http2Connection;
  readonly done: Promise<void>;
  readonly streams: RpcStream[] = [];
  readonly #parser = new FrameParser();

  constructor(options: TestContextOptions & { open?: (stream: RpcStream) => void } = {}) {
    const rpc = {
      maxMessageBytes: 2 ** 31 - 1,
      open: (stream: RpcStream) => {
        this.streams.push(stream);
        options.open?.(stream);
      },
    };
    this.context = createTestContext({ rpc, ...options });
    this.server = new Http2Connection(this.connection, this.context);
    this.done = this.server.run(new Uint8Array(0));
    this.connection.feed(concat(PREFACE, settingsFrame()));
  }

  async send(...parts: Uint8Array[]): Promise<PeerFrame[]> {
    this.connection.feed(concat(...parts));
    await settle();
    return this.frames();
  }

  frames(): PeerFrame[] {
    return this.#parser.push(this.connection.takeOutput());
  }

  async end(): Promise<void> {
    this.connection.feedEnd();
    await this.done;
    assert.equal(this.context.pool.outstandingCount, 0, "buffers not given back");
    assert.equal(this.context.pool.chargedBytes, 0, "bytes still charged");
  }
}

/** Frames of one type. */
export function ofType(frames: readonly PeerFrame[], type: number): PeerFrame[] {
  return frames.filter((found) => found.type === type);
}

/** Content of a stream's DATA frames. */
export function content(frames: readonly PeerFrame[], streamId = 1): Uint8Array {
  const data = ofType(frames, FrameType.DATA).filter((found) => found.streamId === streamId);
  return concat(...data.map((found) => found.payload));
}
