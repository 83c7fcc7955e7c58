import assert from "node:assert/strict";
import { connect as connectNode } from "node:net";
import { encodeUint32, FrameType } from "../../server/transport/http2_frames.ts";
import type { RpcStream } from "../../server/transport/transport.ts";
import {
  concat,
  dataFrame,
  errorCode,
  frame,
  GRPC_FIELDS,
  headersFrame,
  message,
  PREFACE,
  settingsFrame,
} from "./http2_peer.ts";
import { latin1 } from "./memory_connection.ts";
import {
  exchangeText,
  Http2Peer,
  isEnd,
  openTestListener,
  type TestListener,
  writeFully,
} from "./socket_peer.ts";

const CLOSING = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
const RST_CANCEL = encodeUint32(8);

function connect({ listener }: TestListener): Promise<Deno.TcpConn> {
  return Deno.connect({ hostname: "127.0.0.1", port: listener.port });
}

async function checkAlive(test: TestListener): Promise<void> {
  using connection = await connect(test);
  assert.match(await exchangeText(connection, CLOSING), /hello$/);
  using peer = await Http2Peer.open(await connect(test));
  await peer.send(headersFrame(1, GRPC_FIELDS), dataFrame(1, message(latin1("hi")), 1));
  await peer.readUntil(isEnd(1));
}

/** Connects and resets at once, or after some bytes. */
function connectAndReset(port: number, bytes?: Uint8Array): Promise<void> {
  return new Promise((resolve) => {
    const socket = connectNode(port, "127.0.0.1", () => {
      if (bytes === undefined) return socket.resetAndDestroy();
      socket.write(bytes, () => socket.resetAndDestroy());
    });
    socket.on("error", () => {});
    socket.on("close", () => resolve());
  });
}

Deno.test("Listener survives 200 connections that are reset before they are accepted", async () => {
  await using test = await openTestListener();
  for (let round = 0; round < 200; round++) await connectAndReset(test.listener.port);
  await checkAlive(test);
});

Deno.test("Listener survives connections that are reset inside requests and messages", async () => {
  await using test = await openTestListener();
  const start = concat(PREFACE, settingsFrame(), headersFrame(1, GRPC_FIELDS));
  const starts = [
    latin1("GET / HT"),
    latin1("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\nhello"),
    latin1("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\nhello"),
    latin1("GET / HTTP/1.1\r\nHost: a\r\nX-Wait: 1000\r\n\r\n"),
    PREFACE,
    start,
    concat(start, dataFrame(1, message(new Uint8Array(100_000)).subarray(0, 60_000))),
    concat(
      start,
      dataFrame(1, message(latin1("hello")), 1),
      frame(FrameType.GOAWAY, { payload: new Uint8Array(8) }),
    ),
  ];
  for (let round = 0; round < 20; round++) {
    for (const bytes of starts) await connectAndReset(test.listener.port, bytes);
  }
  await checkAlive(test);
  assert.deepEqual(test.faults, []);
});

Deno.test("Listener survives clients that say goodbye politely", async () => {
  await using test = await openTestListener();
  for (let round = 0; round < 50; round++) {
    using peer = await Http2Peer.open(await connect(test));
    const streamCount = 1 + round % 5;
    for (let index = 0; index < streamCount; index++) {
      await peer.send(
        headersFrame(2 * index + 1, GRPC_FIELDS),
        dataFrame(2 * index + 1, message(latin1("x")), 1),
      );
    }
    if (round % 2 === 0) await peer.readUntil(isEnd(2 * streamCount - 1));
    await peer.send(frame(FrameType.GOAWAY, { payload: new Uint8Array(8) }));
  }
  await checkAlive(test);
});

Deno.test("Listener ends rapid reset and goes on serving others", async () => {
  await using test = await openTestListener();
  using peer = await Http2Peer.open(await connect(test));
  const flood = Array.from({ length: 5_000 }, (_, index) =>
    concat(
      headersFrame(2 * index + 1, GRPC_FIELDS),
      frame(FrameType.RST_STREAM, { streamId: 2 * index + 1, payload: RST_CANCEL }),
    ));
  const sending = peer.send(...flood).catch(() => {});
  const frames = await peer.readUntil((found) => found.type === FrameType.GOAWAY);
  assert.equal(errorCode(frames.at(-1)!), 11);
  await checkAlive(test);
  await sending;
});

Deno.test("Listener holds little for a client that does not read", async () => {
  let waiting: RpcStream | undefined;
  let sentCount = 0;
  const part = new Uint8Array(100_000);
  const rpc = {
    maxMessageBytes: 1_000,
    open: (stream: RpcStream) => {
      stream.sendHeaders([["content-type", "application/grpc"]]);
      const sendSome = () => {
        while (!stream.closed && stream.send([part], () => sentCount++));
        waiting = stream;
      };
      stream.onDrain = sendSome;
      sendSome();
    },
  };
  const limits = { streamStallTimeoutMs: 300, writeTimeoutMs: 300 };
  await using test = await openTestListener({ rpc }, { limits });
  using peer = await Http2Peer.open(await connect(test), [4, 2 ** 31 - 1]);
  await peer.send(
    frame(FrameType.WINDOW_UPDATE, { payload: encodeUint32(2 ** 31 - 1 - 65_535) }),
    headersFrame(1, GRPC_FIELDS),
  );
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  assert.equal(waiting?.closed, true, "the stalled connection was cut off");
  assert.ok(sentCount * part.length < 20_000_000, `${sentCount} parts were taken`);
});

Deno.test("Listener cuts off bodies that come too slowly", async () => {
  const limits = { bodyTimeoutMs: 200, headerTimeoutMs: 200 };
  await using test = await openTestListener({}, { limits });
  using body = await connect(test);
  const late = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhello";
  assert.match(await exchangeText(body, late), /^HTTP\/1.1 408 [^]*did not arrive in time/);
  using head = await connect(test);
  assert.match(await exchangeText(head, "GET / HTTP/1.1\r\nHost:"), /^HTTP\/1.1 408 /);
  using peer = await Http2Peer.open(await connect(test));
  await peer.send(
    headersFrame(1, GRPC_FIELDS),
    dataFrame(1, message(new Uint8Array(100)).subarray(0, 50)),
  );
  const frames = await peer.readUntil((found) => found.type === FrameType.RST_STREAM);
  assert.equal(errorCode(frames.at(-1)!), 8);
});

Deno.test("Listener notices half-open connections by its pings", async () => {
  const limits = { keepaliveTimeMs: 200, keepaliveTimeoutMs: 200, permitWithoutCalls: true };
  await using test = await openTestListener({}, { limits });
  using silent = await connect(test);
  await writeFully(silent, concat(PREFACE, settingsFrame()));
  const answer = await exchangeText(silent, "");
  assert.ok(answer.length > 0, "SETTINGS and PING came before the end");
  await checkAlive(test);
});

Deno.test("Listener goes on when it had run out of file descriptors", async () => {
  const script = new URL("./echo_server.ts", import.meta.url).pathname;
  const command = `ulimit -n 64; exec "${Deno.execPath()}" run --quiet --allow-net "${script}"`;
  const child = new Deno.Command("sh", { args: ["-c", command], stdin: "piped", stdout: "piped" })
    .spawn();
  const reader = child.stdout.getReader();
  const port = Number(new TextDecoder().decode((await reader.read()).value));
  const hoard: Deno.TcpConn[] = [];
  for (let index = 0; index < 100; index++) {
    hoard.push(await Deno.connect({ hostname: "127.0.0.1", port }));
  }
  using starved = hoard.at(-1)!;
  let isAnswered = false;
  const answer = exchangeText(starved, CLOSING).then((text) => (isAnswered = true, text));
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(isAnswered, false, "there were descriptors enough");
  for (const connection of hoard.slice(0, -1)) connection.close();
  assert.match(await answer, /hello$/);
  reader.releaseLock();
  await child.stdin.close();
  await child.stdout.cancel();
  await child.status;
});
