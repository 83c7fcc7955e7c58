import assert from "node:assert/strict";
import {
  concat,
  dataFrame,
  errorCode,
  frame,
  FrameParser,
  GRPC_FIELDS,
  headersFrame,
  message,
  type PeerFrame,
  POST_FIELDS,
  PREFACE,
  settingsFrame,
  windowUpdate,
} from "../../tests/transport/http2_peer.ts";
import { latin1, MemoryConnection, settle } from "../../tests/transport/memory_connection.ts";
import {
  createTestContext,
  type TestContext,
  type TestContextOptions,
} from "../../tests/transport/test_context.ts";
import { Http2Connection } from "./http2_connection.ts";
import { FrameType, readUint31 } from "./http2_frames.ts";
import type { HttpRequest, MessageRefusal, RpcStream } from "./transport.ts";

const WHOLE = 5;
const END_STREAM = 1;
const NO_BYTES = new Uint8Array(0);
const GRPC_OK = Object.freeze([["grpc-status", "0"] as const]);
const GRPC_HEADERS = Object.freeze([["content-type", "application/grpc"] as const]);

/** A client over memory. */
class Client {
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
    this.done = this.server.run(NO_BYTES);
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

function ofType(frames: readonly PeerFrame[], type: number): PeerFrame[] {
  return frames.filter((found) => found.type === type);
}

function content(frames: readonly PeerFrame[], streamId = 1): Uint8Array {
  const data = ofType(frames, FrameType.DATA).filter((found) => found.streamId === streamId);
  return concat(...data.map((found) => found.payload));
}

/** Answers every message with itself. */
function echo(stream: RpcStream): void {
  stream.sendHeaders(GRPC_HEADERS);
  stream.onMessage = (bytes, _compressed, release) => {
    stream.send([message(bytes).subarray(0, 5), bytes], release);
  };
  stream.onEnd = () => stream.finish(GRPC_OK);
}

Deno.test("Http2Connection serves a gRPC call in one write", async () => {
  const client = new Client({ open: echo });
  await client.send();
  const before = client.connection.writeCount;
  const frames = await client.send(
    headersFrame(1, GRPC_FIELDS),
    dataFrame(1, message(latin1("hello")), END_STREAM),
  );
  assert.equal(client.connection.writeCount, before + 1);
  assert.deepEqual(frames.map((found) => found.type), [
    FrameType.HEADERS,
    FrameType.DATA,
    FrameType.HEADERS,
  ]);
  assert.deepEqual(frames[0]!.fields, [[":status", "200"], ["content-type", "application/grpc"]]);
  assert.deepEqual(content(frames), message(latin1("hello")));
  assert.deepEqual(frames[2]!.fields, [["grpc-status", "0"]]);
  assert.equal(frames[2]!.flags, WHOLE);
  await client.end();
});

Deno.test("RpcStream.finish() without headers sends trailers only", async () => {
  const client = new Client({ open: (stream) => stream.finish([["grpc-status", "12"]]) });
  const frames = await client.send(headersFrame(1, GRPC_FIELDS, WHOLE));
  assert.deepEqual(ofType(frames, FrameType.HEADERS)[0]!.fields, [[":status", "200"], [
    "grpc-status",
    "12",
  ]]);
  assert.equal(ofType(frames, FrameType.RST_STREAM).length, 0);
  const early = await client.send(headersFrame(3, GRPC_FIELDS));
  assert.equal(errorCode(ofType(early, FrameType.RST_STREAM)[0]!), 0, "asks the peer to stop");
  await client.end();
});

Deno.test("RpcStream.send() obeys both windows and wakes the sender", async () => {
  let sent = 0;
  let drained = 0;
  const big = latin1("0123456789".repeat(10_000));
  const client = new Client({
    open: (stream) => {
      stream.onDrain = () => void drained++;
      stream.sendHeaders(GRPC_HEADERS);
      assert.equal(stream.send([big], () => sent++), false);
    },
  });
  let frames = await client.send(headersFrame(1, GRPC_FIELDS));
  assert.equal(content(frames).length, 65_535);
  assert.equal(sent + drained, 0);
  frames = frames.concat(await client.send(windowUpdate(1, 20_000)));
  assert.equal(content(frames).length, 65_535, "connection window is used up");
  frames = frames.concat(await client.send(windowUpdate(0, 10_000)));
  assert.equal(content(frames).length, 75_535);
  frames = frames.concat(await client.send(windowUpdate(0, 100_000)));
  assert.equal(content(frames).length, 85_535, "stream window is used up");
  frames = frames.concat(await client.send(windowUpdate(1, 100_000)));
  assert.deepEqual(content(frames), big);
  assert.equal(sent, 1);
  assert.equal(drained, 1);
  assert.ok(
    frames.every((found) => found.payload.length <= 16_384),
    "frames fit the peer's setting",
  );
  await client.end();
});

Deno.test("Http2Connection applies INITIAL_WINDOW_SIZE to open streams, also below zero", async () => {
  const client = new Client({ open: echo });
  let frames = await client.send(
    settingsFrame([4, 3]),
    headersFrame(1, GRPC_FIELDS),
    dataFrame(1, message(latin1("hello"))),
  );
  assert.equal(content(frames).length, 3);
  frames = frames.concat(await client.send(settingsFrame([4, 1]), windowUpdate(1, 2)));
  assert.equal(content(frames).length, 3);
  frames = frames.concat(await client.send(settingsFrame([4, 100])));
  assert.deepEqual(content(frames), message(latin1("hello")));
  await client.end();
});

Deno.test("Http2Connection shares a connection window fairly", async () => {
  const client = new Client({
    open: (stream) => {
      stream.sendHeaders(GRPC_HEADERS);
      stream.send([new Uint8Array(1_000_000)]);
    },
  });
  await client.send(
    settingsFrame([4, 10_000_000]),
    headersFrame(1, GRPC_FIELDS),
    headersFrame(3, GRPC_FIELDS),
  );
  const frames: PeerFrame[] = [];
  for (let round = 0; round < 20; round++) {
    frames.push(...await client.send(windowUpdate(0, 16_384)));
  }
  const first = content(frames, 1).length;
  const second = content(frames, 3).length;
  assert.ok(first > 100_000 && second > 100_000, `${first} and ${second}`);
  await client.end();
});

Deno.test("RpcStream.pause() holds window back until resume()", async () => {
  let messages = 0;
  const client = new Client({
    limits: { streamWindowBytes: 1_000 },
    open: (stream) => {
      stream.onMessage = (_bytes, _compressed, release) => {
        messages++;
        release();
      };
      stream.pause();
    },
  });
  const updates = (frames: PeerFrame[]) =>
    ofType(frames, FrameType.WINDOW_UPDATE).filter((found) => found.streamId === 1);
  let frames = await client.send(
    headersFrame(1, GRPC_FIELDS),
    dataFrame(1, message(new Uint8Array(895))),
  );
  assert.equal(updates(frames).length, 0);
  client.streams[0]!.resume();
  await settle();
  frames = client.frames();
  assert.equal(readUint31(updates(frames)[0]!.payload, 0), 900);
  client.streams[0]!.pause();
  await client.send(dataFrame(1, message(new Uint8Array(990))));
  assert.equal(messages, 2);
  frames = await client.send(dataFrame(1, new Uint8Array(10)));
  assert.equal(errorCode(ofType(frames, FrameType.RST_STREAM)[0]!), 3, "FLOW_CONTROL_ERROR");
  await client.end();
});

Deno.test("Http2Connection ends a peer that exceeds the connection window", async () => {
  const client = new Client({
    limits: { connectionWindowBytes: 65_535, streamWindowBytes: 200_000 },
  });
  const frames = await client.send(
    headersFrame(1, GRPC_FIELDS),
    dataFrame(1, new Uint8Array(70_000)),
  );
  assert.equal(errorCode(ofType(frames, FrameType.GOAWAY)[0]!), 3);
  await client.end();
});

Deno.test("Http2Connection takes a message of many frames without losing a byte", async () => {
  const client = new Client({ open: echo, limits: { maxFrameBytes: 1_000_000 } });
  const bytes = message(
    Uint8Array.from({ length: 700_000 }, (_, index) => index * 7 + (index >> 8)),
  );
  client.connection.maxReadBytes = 40_000;
  await client.send(settingsFrame([4, 10_000_000], [5, 1_000_000]), windowUpdate(0, 10_000_000));
  const frames = await client.send(
    headersFrame(1, GRPC_FIELDS),
    dataFrame(1, bytes.subarray(0, 3)),
    dataFrame(1, bytes.subarray(3, 600_000)),
    dataFrame(1, bytes.subarray(600_000), END_STREAM),
  );
  assert.deepEqual(content(frames), bytes);
  await client.end();
});

Deno.test("Http2Connection calls onSent exactly once, whatever ends the stream", async () => {
  for (const ending of ["written", "reset by peer", "reset by handler", "lost", "closed before"]) {
    let sent = 0;
    const client = new Client({
      open: (stream) => {
        stream.sendHeaders(GRPC_HEADERS);
        if (ending === "closed before") stream.reset(8);
        stream.send([new Uint8Array(100_000)], () => sent++);
      },
    });
    await client.send(headersFrame(1, GRPC_FIELDS));
    if (ending === "written") await client.send(windowUpdate(0, 100_000), windowUpdate(1, 100_000));
    if (ending === "reset by peer") {
      await client.send(frame(FrameType.RST_STREAM, { streamId: 1, payload: new Uint8Array(4) }));
    }
    if (ending === "reset by handler") client.streams[0]!.reset(8);
    if (ending === "lost") client.connection.feedError();
    await settle();
    assert.equal(sent, 1, ending);
    await client.end();
    assert.equal(sent, 1, ending);
  }
});

Deno.test("Http2Connection keeps sent parts until the write that uses them ended", async () => {
  let released = false;
  const client = new Client({
    open: (stream) => {
      stream.sendHeaders(GRPC_HEADERS);
      stream.send([new Uint8Array(30_000)], () => released = true);
    },
  });
  await client.send();
  client.connection.isBlocked = true;
  await client.send(headersFrame(1, GRPC_FIELDS));
  client.streams[0]!.reset(8);
  await settle();
  assert.equal(released, false);
  client.connection.unblock();
  await settle();
  assert.equal(released, true);
  await client.end();
});

Deno.test("Http2Connection tells a handler about resets and lost connections once", async () => {
  let resets = 0;
  const client = new Client({ open: (stream) => stream.onReset = () => void resets++ });
  await client.send(
    headersFrame(1, GRPC_FIELDS),
    headersFrame(3, GRPC_FIELDS),
    headersFrame(5, GRPC_FIELDS),
  );
  await client.send(frame(FrameType.RST_STREAM, { streamId: 1, payload: new Uint8Array(4) }));
  assert.equal(resets, 1);
  await client.end();
  assert.equal(resets, 3);
  assert.ok(client.streams.every((stream) => stream.closed));
});

Deno.test("Http2Connection refuses messages over the limit with a status", async () => {
  const refusals: MessageRefusal[] = [];
  const rpc = (maps: boolean) => ({
    maxMessageBytes: 10,
    open: (stream: RpcStream) => {
      if (!maps) return;
      stream.onRefused = (refusal) => {
        refusals.push(refusal);
        stream.finish([["grpc-status", "8"], ["grpc-message", "mapped"]]);
      };
    },
  });
  for (const maps of [true, false]) {
    const client = new Client({ rpc: rpc(maps) });
    const frames = await client.send(
      headersFrame(1, GRPC_FIELDS),
      dataFrame(1, message(new Uint8Array(11))),
    );
    const fields = new Map(ofType(frames, FrameType.HEADERS)[0]!.fields);
    assert.equal(fields.get("grpc-status"), "8");
    assert.match(fields.get("grpc-message")!, maps ? /mapped/ : /\(11 vs\. 10\)/);
    await client.end();
  }
  assert.equal(refusals[0]!.reason, "too_large");
});

Deno.test("Http2Connection keeps the memory quota of a connection", async () => {
  const kept: (() => void)[] = [];
  const client = new Client({
    limits: { maxConnectionBufferBytes: 1_000_000 },
    open: (stream) => {
      stream.onMessage = (_bytes, _compressed, release) => void kept.push(release);
    },
  });
  const frames: PeerFrame[] = [];
  for (let streamId = 1; streamId < 20; streamId += 2) {
    frames.push(
      ...await client.send(
        headersFrame(streamId, GRPC_FIELDS),
        dataFrame(streamId, message(new Uint8Array(200_000))),
      ),
    );
  }
  assert.equal(kept.length, 5);
  assert.equal(ofType(frames, FrameType.HEADERS).length, 5, "the others are refused");
  for (const release of kept) release();
  await client.end();
});

Deno.test("Http2Connection serves HTTP requests with the HTTP handler", async () => {
  const seen: HttpRequest[] = [];
  const http = {
    handle: (request: HttpRequest) => {
      seen.push(request);
      return {
        status: 200,
        headers: [["X-Upper", "1"], ["connection", "x"]] as [string, string][],
        body: [request.body],
      };
    },
  };
  const client = new Client({ http });
  const frames = await client.send(
    headersFrame(1, POST_FIELDS),
    dataFrame(1, latin1("hel")),
    dataFrame(1, latin1("lo"), END_STREAM),
  );
  assert.equal(seen[0]!.target, "/echo");
  assert.equal(seen[0]!.headers.get("host"), "localhost");
  assert.equal(seen[0]!.headers.get(":path"), undefined);
  assert.deepEqual(ofType(frames, FrameType.HEADERS)[0]!.fields, [
    [":status", "200"],
    ["x-upper", "1"],
    ["content-length", "5"],
  ]);
  assert.deepEqual(content(frames), latin1("hello"));
  assert.equal(ofType(frames, FrameType.DATA).at(-1)!.flags, END_STREAM);
  await client.end();
});

Deno.test("Http2Connection streams HTTP responses and sends trailers", async () => {
  async function* body() {
    yield latin1("one");
    yield await Promise.resolve(latin1("two"));
  }
  let sent = 0;
  const http = {
    handle: () => ({
      status: 200,
      body: body(),
      trailers: [["x-end", "1"]] as [string, string][],
      onSent: () => sent++,
    }),
  };
  const client = new Client({ http });
  const frames = await client.send(headersFrame(1, POST_FIELDS, WHOLE));
  assert.deepEqual(content(frames), latin1("onetwo"));
  assert.deepEqual(frames.at(-1)!.fields, [["x-end", "1"]]);
  assert.equal(sent, 1);
  await client.end();
});

Deno.test("Http2Connection refuses HTTP bodies over the limit, and lets admit() answer early", async () => {
  const http = {
    admit: (head: { target: string }) => head.target === "/echo" ? undefined : { status: 404 },
    handle: () => ({ status: 200 }),
  };
  const status = (frames: PeerFrame[]) => ofType(frames, FrameType.HEADERS)[0]?.fields?.[0]?.[1];
  const client = new Client({ http, limits: { maxBodyBytes: 10 } });
  const long = [...POST_FIELDS, ["content-length", "11"]] as [string, string][];
  assert.equal(status(await client.send(headersFrame(1, long))), "413");
  assert.equal(
    status(await client.send(headersFrame(3, POST_FIELDS), dataFrame(3, new Uint8Array(11)))),
    "413",
  );
  const other = POST_FIELDS.map(([name, value]) =>
    [name, name === ":path" ? "/x" : value] as [string, string]
  );
  assert.equal(status(await client.send(headersFrame(5, other))), "404");
  assert.equal(
    status(await client.send(headersFrame(7, POST_FIELDS), dataFrame(7, new Uint8Array(10), 1))),
    "200",
  );
  await client.end();
});

Deno.test("Http2Connection aborts an HTTP request that is reset", async () => {
  let signal: AbortSignal | undefined;
  const http = {
    handle: (request: HttpRequest) => {
      signal = request.signal;
      return new Promise<{ status: number }>((resolve) =>
        signal!.addEventListener("abort", () => resolve({ status: 499 }))
      );
    },
  };
  const client = new Client({ http });
  await client.send(headersFrame(1, POST_FIELDS, WHOLE));
  assert.equal(signal!.aborted, false);
  await client.send(frame(FrameType.RST_STREAM, { streamId: 1, payload: new Uint8Array(4) }));
  assert.equal(signal!.aborted, true);
  await client.end();
});

Deno.test("Http2Connection survives handlers that throw", async () => {
  const fail = () => {
    throw new Error("handler failed");
  };
  const opens: ((stream: RpcStream) => void)[] = [
    fail,
    (stream) =>
      stream.onMessage = (_bytes, _compressed, release) => {
        release();
        fail();
      },
    (stream) => stream.onEnd = fail,
  ];
  for (const open of opens) {
    const client = new Client({ open });
    const frames = await client.send(
      headersFrame(1, GRPC_FIELDS),
      dataFrame(1, message(latin1("x")), END_STREAM),
    );
    assert.equal(errorCode(ofType(frames, FrameType.RST_STREAM)[0]!), 2);
    assert.equal(ofType(frames, FrameType.GOAWAY).length, 0);
    assert.equal(client.context.faults.length, 1);
    await client.end();
  }
});
