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
  PREFACE,
  settingsFrame,
} from "../../tests/transport/http2_peer.ts";
import { latin1, MemoryConnection, settle } from "../../tests/transport/memory_connection.ts";
import { createTestContext } from "../../tests/transport/test_context.ts";
import { encodeHeaderBlock } from "./hpack.ts";
import { Http2Connection } from "./http2_connection.ts";
import { encodeUint32, FrameType } from "./http2_frames.ts";
import { TokenBucket } from "./http2_guard.ts";
import type { TransportLimits } from "./limits.ts";
import type { RpcStream } from "./transport.ts";

const CALM = 11;
const PING = frame(FrameType.PING, { payload: new Uint8Array(8) });
const RESET = (streamId: number) =>
  frame(FrameType.RST_STREAM, { streamId, payload: encodeUint32(8) });

function open(
  limits: Partial<TransportLimits> = {},
  handler: (stream: RpcStream) => void = () => {},
) {
  const connection = new MemoryConnection();
  const rpc = { maxMessageBytes: 1_000_000, open: handler };
  const context = createTestContext({ limits, rpc });
  const server = new Http2Connection(connection, context);
  const done = server.run(new Uint8Array(0));
  const parser = new FrameParser();
  connection.feed(concat(PREFACE, settingsFrame()));
  return {
    connection,
    context,
    server,
    done,
    async send(...parts: Uint8Array[]): Promise<PeerFrame[]> {
      connection.feed(concat(...parts));
      await settle();
      return parser.push(connection.takeOutput());
    },
    /** Time passes, in steps as the listener's. */
    async pass(elapsedMs: number, stepMs = elapsedMs): Promise<PeerFrame[]> {
      for (let left = elapsedMs; left > 0; left -= stepMs) {
        context.now += Math.min(left, stepMs);
        server.tick();
      }
      await settle();
      return parser.push(connection.takeOutput());
    },
    async end() {
      connection.feedEnd();
      await done;
    },
  };
}

function goaway(frames: readonly PeerFrame[]): PeerFrame | undefined {
  return frames.find((found) => found.type === FrameType.GOAWAY);
}

function debugText(found: PeerFrame): string {
  return new TextDecoder().decode(found.payload.subarray(8));
}

Deno.test("Http2Connection ends floods with ENHANCE_YOUR_CALM", async () => {
  const block = encodeHeaderBlock(GRPC_FIELDS);
  const floods: Record<string, () => Uint8Array> = {
    "rapid reset": () =>
      concat(
        ...Array.from({ length: 1_200 }, (_, index) =>
          concat(headersFrame(2 * index + 1, GRPC_FIELDS), RESET(2 * index + 1))),
      ),
    "resets provoked by bad window updates": () =>
      concat(...Array.from({ length: 1_200 }, (_, index) =>
        concat(
          headersFrame(2 * index + 1, GRPC_FIELDS),
          frame(FrameType.WINDOW_UPDATE, { streamId: 2 * index + 1, payload: encodeUint32(0) }),
        ))),
    "SETTINGS": () => concat(...Array.from({ length: 1_200 }, () => settingsFrame())),
    "empty DATA": () =>
      concat(
        headersFrame(1, GRPC_FIELDS),
        ...Array.from({ length: 1_200 }, () => dataFrame(1, new Uint8Array(0))),
      ),
    "PRIORITY": () =>
      concat(
        ...Array.from({ length: 1_200 }, () =>
          frame(FrameType.PRIORITY, { streamId: 1, payload: new Uint8Array(5) })),
      ),
    "unknown frames": () => concat(...Array.from({ length: 1_200 }, () => frame(99))),
    "empty CONTINUATION": () =>
      concat(
        frame(FrameType.HEADERS, { streamId: 1, payload: block }),
        ...Array.from({ length: 100 }, () => frame(FrameType.CONTINUATION, { streamId: 1 })),
      ),
    "endless header block": () =>
      concat(
        frame(FrameType.HEADERS, { streamId: 1, payload: block }),
        ...Array.from({ length: 20 }, () =>
          frame(FrameType.CONTINUATION, { streamId: 1, payload: new Uint8Array(16_000) })),
      ),
    "pings": () => concat(PING, PING, PING, PING),
  };
  for (const [name, flood] of Object.entries(floods)) {
    const session = open({ resetBurst: 1_000 });
    const frames = await session.send(flood());
    const found = goaway(frames);
    assert.ok(found !== undefined, name);
    assert.equal(errorCode(found), CALM, name);
    await session.end();
    assert.equal(session.context.pool.outstandingCount, 0);
  }
});

Deno.test("Http2Connection refuses a header list that decompresses beyond the limit", async () => {
  const session = open({ maxHeaderListBytes: 4_096 });
  const entry = encodeHeaderBlock([["x-bomb", "b".repeat(1_000)]]);
  entry[0] = 0x40;
  const bomb = concat(encodeHeaderBlock(GRPC_FIELDS), entry, new Uint8Array(1_000).fill(0xbe));
  const frames = await session.send(
    frame(FrameType.HEADERS, { streamId: 1, flags: 4, payload: bomb }),
    headersFrame(3, GRPC_FIELDS),
  );
  const reset = frames.find((found) => found.type === FrameType.RST_STREAM);
  assert.equal(reset?.streamId, 1);
  assert.equal(errorCode(reset!), CALM);
  assert.equal(goaway(frames), undefined);
  await session.end();
});

Deno.test("Http2Connection strikes pings that come too often, and forgives after sending", async () => {
  const answers = (stream: RpcStream) => stream.finish([["grpc-status", "0"]]);
  const session = open({}, answers);
  for (let round = 0; round < 10; round++) {
    const frames = await session.send(
      headersFrame(2 * round + 1, GRPC_FIELDS, 5),
      PING,
      PING,
      PING,
    );
    assert.equal(goaway(frames), undefined, `round ${round}`);
  }
  const frames = await session.send(PING, PING);
  assert.equal(debugText(goaway(frames)!), "too_many_pings");
  await session.end();
  const patient = open({ maxPingStrikes: 0 });
  assert.equal(goaway(await patient.send(...Array.from({ length: 100 }, () => PING))), undefined);
  await patient.end();
  const allowed = open({ permitWithoutCalls: true, minRecvPingIntervalMs: 0 });
  assert.equal(goaway(await allowed.send(...Array.from({ length: 100 }, () => PING))), undefined);
  await allowed.end();
});

Deno.test("Http2Connection pings a silent connection and closes a dead one", async () => {
  const limits = { keepaliveTimeMs: 10_000, keepaliveTimeoutMs: 5_000 };
  const session = open(limits);
  await session.send(headersFrame(1, GRPC_FIELDS));
  assert.equal((await session.pass(9_000)).length, 0);
  let frames = await session.pass(2_000, 250);
  const ping = frames.find((found) => found.type === FrameType.PING);
  assert.ok(ping !== undefined);
  frames = await session.send(frame(FrameType.PING, { flags: 1, payload: ping.payload }));
  await session.pass(9_000, 250);
  assert.equal(session.connection.closed, false);
  await session.pass(7_000, 250);
  assert.equal(session.connection.closed, true);
  await session.done;
  const idle = open(limits);
  await idle.send();
  assert.equal(
    (await idle.pass(60_000, 250)).filter((found) => found.type === FrameType.PING).length,
    0,
  );
  await idle.end();
});

Deno.test("Http2Connection sends so many pings while nothing else is sent", async () => {
  for (const [maxPingsWithoutData, expected] of [[2, 2], [0, 5]] as const) {
    const streams: RpcStream[] = [];
    const session = open(
      { keepaliveTimeMs: 10_000, maxPingsWithoutData },
      (stream) => streams.push(stream),
    );
    await session.send(headersFrame(1, GRPC_FIELDS));
    assert.equal(await answeredPings(session, 5), expected);
    streams[0]!.sendHeaders([["content-type", "application/grpc"]]);
    assert.equal(await answeredPings(session, 1), 1, "something was sent");
    await session.end();
  }
});

/** Lets rounds of silence pass and answers the pings that come; returns their number. */
async function answeredPings(session: ReturnType<typeof open>, rounds: number): Promise<number> {
  let count = 0;
  for (let round = 0; round < rounds; round++) {
    const frames = await session.pass(11_000, 250);
    const pings = frames.filter(({ type, flags }) => type === FrameType.PING && flags === 0);
    count += pings.length;
    for (const { payload } of pings) {
      await session.send(frame(FrameType.PING, { flags: 1, payload }));
    }
    if (pings.length === 0) {
      await session.send(frame(FrameType.WINDOW_UPDATE, { payload: encodeUint32(1) }));
    }
  }
  return count;
}

Deno.test("Http2Connection ends by age and cuts off what exceeds the grace", async () => {
  const session = open({ maxConnectionAgeMs: 10_000, maxConnectionAgeGraceMs: 5_000 });
  await session.send(headersFrame(1, GRPC_FIELDS));
  const frames = await session.pass(11_500, 250);
  assert.ok(goaway(frames) !== undefined);
  assert.equal(session.connection.closed, false);
  await session.pass(6_000, 250);
  assert.equal(session.connection.closed, true);
  await session.done;
});

Deno.test("Http2Connection.drain() announces, waits for late requests, then for answers", async () => {
  const streams: RpcStream[] = [];
  const session = open({}, (stream) => streams.push(stream));
  await session.send(headersFrame(1, GRPC_FIELDS, 5));
  session.server.drain();
  let frames = await session.send();
  const announced = goaway(frames)!;
  assert.deepEqual([...announced.payload], [127, 255, 255, 255, 0, 0, 0, 0]);
  const ping = frames.find((found) => found.type === FrameType.PING)!;
  frames = await session.send(headersFrame(3, GRPC_FIELDS, 5));
  assert.equal(streams.length, 2, "request under way is served");
  frames = await session.send(
    frame(FrameType.PING, { flags: 1, payload: ping.payload }),
    headersFrame(5, GRPC_FIELDS, 5),
  );
  assert.deepEqual([...goaway(frames)!.payload], [0, 0, 0, 3, 0, 0, 0, 0]);
  const refused = frames.find((found) => found.type === FrameType.RST_STREAM)!;
  assert.equal(refused.streamId, 5);
  assert.equal(errorCode(refused), 7);
  for (const stream of streams) stream.finish([["grpc-status", "0"]]);
  await settle();
  assert.equal(session.connection.writeClosed, true);
  await session.end();
});

Deno.test("Http2Connection.drain() does not wait for a peer that does not answer its ping", async () => {
  const session = open();
  await session.send();
  session.server.drain();
  await session.pass(1_500, 250);
  assert.equal(session.connection.writeClosed, true);
  await session.end();
});

Deno.test("Http2Connection.tick() ends what takes too long", async () => {
  const silent = open();
  const empty = new MemoryConnection();
  const context = createTestContext();
  const server = new Http2Connection(empty, context);
  const done = server.run(PREFACE.subarray(0, 10));
  context.now += 20_001;
  server.tick();
  await done;
  await silent.end();

  const block = open();
  await block.send(
    frame(FrameType.HEADERS, { streamId: 1, payload: encodeHeaderBlock(GRPC_FIELDS) }),
  );
  await block.pass(20_001);
  assert.equal(block.connection.closed, true);
  await block.done;

  const slow = open();
  await slow.send(
    headersFrame(1, GRPC_FIELDS),
    dataFrame(1, message(latin1("hello")).subarray(0, 7)),
  );
  const frames = await slow.pass(60_001);
  assert.equal(errorCode(frames.find((found) => found.type === FrameType.RST_STREAM)!), 8);
  assert.equal(slow.context.pool.outstandingCount, 0);
  await slow.end();

  const quiet = open();
  await quiet.send(headersFrame(1, GRPC_FIELDS), dataFrame(1, message(latin1("hello"))));
  assert.equal(
    (await quiet.pass(600_000, 10_000)).length,
    0,
    "a quiet stream between messages may stay",
  );
  await quiet.end();
});

Deno.test("Http2Connection.tick() cuts off peers that do not read", async () => {
  const answer = (stream: RpcStream) => {
    stream.sendHeaders([]);
    stream.send([new Uint8Array(100_000)]);
  };
  const window = open({ streamStallTimeoutMs: 10_000 }, answer);
  await window.send(headersFrame(1, GRPC_FIELDS));
  const frames = await window.pass(11_000, 1_000);
  assert.ok(frames.some((found) => found.type === FrameType.RST_STREAM));
  await window.end();
  const socket = open({}, answer);
  await socket.send();
  socket.connection.isBlocked = true;
  await socket.send(headersFrame(1, GRPC_FIELDS));
  await socket.pass(61_000, 1_000);
  assert.equal(socket.connection.closed, true);
  await socket.done;
});

Deno.test("Http2Connection stops reading when its output is not read", async () => {
  let opened = 0;
  const session = open({
    maxConcurrentStreams: 100_000,
    maxPingStrikes: 0,
    emptyFrameBurst: Infinity,
  }, () => opened++);
  await session.send();
  session.connection.isBlocked = true;
  for (let round = 0; round < 400; round++) {
    session.connection.feed(concat(...Array.from({ length: 500 }, () => PING)));
  }
  await settle();
  await settle();
  session.connection.feed(headersFrame(1, GRPC_FIELDS));
  for (let turn = 0; turn < 20; turn++) await settle();
  assert.equal(opened, 0);
  session.connection.unblock();
  for (let turn = 0; turn < 20; turn++) await settle();
  assert.equal(opened, 1);
  await session.end();
});

Deno.test("TokenBucket.take() lets a burst through, then the rate", () => {
  const bucket = new TokenBucket({ burst: 3, perSecond: 10 }, 0);
  assert.deepEqual([0, 0, 0, 0].map((now) => bucket.take(now)), [true, true, true, false]);
  assert.equal(bucket.take(99), false);
  assert.equal(bucket.take(200), true);
  const later = Array.from({ length: 10 }, () => bucket.take(10_000));
  assert.equal(later.filter((taken) => taken).length, 4, "one left over, then a full burst");
});
