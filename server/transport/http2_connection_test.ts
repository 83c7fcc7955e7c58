import assert from "node:assert/strict";
import { Client, content, ofType } from "../../tests/transport/http2_client.ts";
import {
  dataFrame,
  errorCode,
  frame,
  GRPC_FIELDS,
  headersFrame,
  message,
  type PeerFrame,
  settingsFrame,
  windowUpdate,
} from "../../tests/transport/http2_peer.ts";
import { latin1, settle } from "../../tests/transport/memory_connection.ts";
import { FrameType, readUint31 } from "./http2_frames.ts";
import type { MessageRefusal, RpcStream } from "./transport.ts";

const WHOLE = 5;
const END_STREAM = 1;
const GRPC_OK = Object.freeze([["grpc-status", "0"] as const]);
const GRPC_HEADERS = Object.freeze([["content-type", "application/grpc"] as const]);

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
