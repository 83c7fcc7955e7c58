import assert from "node:assert/strict";
import { FrameType } from "../../server/transport/http2_frames.ts";
import type { HttpRequest, HttpResponse } from "../../server/transport/transport.ts";
import { dataFrame, frame, GRPC_FIELDS, headersFrame, message, POST_FIELDS } from "./http2_peer.ts";
import { latin1 } from "./memory_connection.ts";
import { exchangeText, Http2Peer, isEnd, openTestListener, writeFully } from "./socket_peer.ts";

const GET = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const CLOSING = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";

function connect(port: number): Promise<Deno.TcpConn> {
  return Deno.connect({ hostname: "127.0.0.1", port });
}

Deno.test("openListener() serves HTTP/1.1 and HTTP/2 on one port", async () => {
  await using test = await openTestListener();
  const { port } = test.listener;
  assert.ok(port > 0);
  using connection = await connect(port);
  assert.match(await exchangeText(connection, CLOSING), /^HTTP\/1.1 200 OK\r\n[^]*\r\n\r\nhello$/);
  using peer = await Http2Peer.open(await connect(port));
  await peer.send(headersFrame(1, GRPC_FIELDS), dataFrame(1, message(latin1("hello")), 1));
  const frames = await peer.readUntil(isEnd(1));
  assert.deepEqual(
    frames.find((found) => found.type === FrameType.DATA)?.payload,
    message(latin1("hello")),
  );
  await peer.send(headersFrame(3, POST_FIELDS), dataFrame(3, latin1("rest"), 1));
  const answer = await peer.readUntil(isEnd(3));
  assert.deepEqual(answer.at(-1)?.payload, latin1("rest"));
  assert.deepEqual(test.faults, []);
});

Deno.test("openListener() serves fetch, with large bodies both ways", async () => {
  await using test = await openTestListener();
  const url = `http://127.0.0.1:${test.listener.port}/`;
  const body = Uint8Array.from({ length: 3_000_000 }, (_, index) => index * 7 + (index >> 9));
  for (
    const sent of [
      body,
      ReadableStream.from([body.subarray(0, 1_000_001), body.subarray(1_000_001)]),
    ]
  ) {
    const response = await fetch(url, { method: "POST", body: sent });
    assert.deepEqual(await response.bytes(), body);
  }
});

Deno.test("openListener() listens on a unix socket and removes its file", async () => {
  const folder = await Deno.makeTempDir();
  const path = `${folder}/server.sock`;
  {
    await using test = await openTestListener({}, { path });
    assert.equal(test.listener.address, path);
    using connection = await Deno.connect({ transport: "unix", path });
    assert.match(await exchangeText(connection, CLOSING), /hello$/);
    await assert.rejects(openTestListener({}, { path }), "socket in use");
  }
  await assert.rejects(Deno.stat(path));
  const stale = Deno.listen({ transport: "unix", path });
  stale.close();
  await Deno.writeTextFile(`${folder}/file`, "kept");
  await assert.rejects(openTestListener({}, { path: `${folder}/file` }));
  assert.equal(await Deno.readTextFile(`${folder}/file`), "kept");
  await Deno.remove(folder, { recursive: true });
});

Deno.test("openListener() rejects when the port is taken", async () => {
  await using test = await openTestListener();
  await assert.rejects(openTestListener({}, { port: test.listener.port }), Deno.errors.AddrInUse);
});

Deno.test("Listener answers a half-closed client", async () => {
  await using test = await openTestListener();
  using connection = await connect(test.listener.port);
  await writeFully(connection, latin1(GET));
  await connection.closeWrite();
  assert.match(await exchangeText(connection, ""), /^HTTP\/1.1 200/);
});

Deno.test("Listener aborts the request of a client that is gone", async () => {
  const aborted = Promise.withResolvers<void>();
  const http = {
    handle: (request: HttpRequest) =>
      new Promise<HttpResponse>((resolve) =>
        request.signal.addEventListener("abort", () => {
          aborted.resolve();
          resolve({ status: 499 });
        })
      ),
  };
  await using test = await openTestListener({ http });
  const connection = await connect(test.listener.port);
  await writeFully(connection, latin1(GET));
  await new Promise((resolve) => setTimeout(resolve, 20));
  connection.close();
  await aborted.promise;
});

Deno.test("Listener.drain() finishes requests, refuses new connections and says whether all ended", async () => {
  const test = await openTestListener();
  const { port } = test.listener;
  using slow = await connect(port);
  const answer = exchangeText(slow, "GET / HTTP/1.1\r\nHost: a\r\nX-Wait: 200\r\n\r\n");
  using idle = await connect(port);
  await exchangeText(idle, GET, /\r\n\r\n/);
  using peer = await Http2Peer.open(await connect(port));
  await peer.send(headersFrame(1, [...POST_FIELDS, ["x-wait", "200"]], 5));
  await new Promise((resolve) => setTimeout(resolve, 50));
  // Longer than any timer of the runtime.
  const drained = test.listener.drain(2 ** 40);
  await assert.rejects(connect(port));
  const frames = await peer.readUntil((found) => found.type === FrameType.PING);
  assert.ok(frames.some((found) => found.type === FrameType.GOAWAY));
  await peer.send(frame(FrameType.PING, { flags: 1, payload: frames.at(-1)!.payload }));
  await peer.readUntil(isEnd(1));
  assert.match(await answer, /^HTTP\/1.1 200 OK\r\n[^]*connection: close/);
  assert.equal(await idle.read(new Uint8Array(10)), null);
  peer[Symbol.dispose]();
  assert.equal(await drained, true);
  assert.equal(test.listener.connectionCount, 0);
});

Deno.test("Listener.drain() cuts off what lasts too long", async () => {
  const test = await openTestListener();
  using slow = await connect(test.listener.port);
  const answer = exchangeText(slow, "GET / HTTP/1.1\r\nHost: a\r\nX-Wait: 60000\r\n\r\n");
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(await test.listener.drain(100), false);
  await answer;
});

Deno.test("Listener lets connections over the limit wait", async () => {
  await using test = await openTestListener({}, { limits: { maxConnections: 2 } });
  const { port } = test.listener;
  const first = await connect(port);
  const second = await connect(port);
  await exchangeText(first, GET, /\r\n\r\n/);
  await exchangeText(second, GET, /\r\n\r\n/);
  using third = await connect(port);
  let answered = false;
  const answer = exchangeText(third, CLOSING).then((text) => (answered = true, text));
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(answered, false);
  first.close();
  assert.match(await answer, /hello$/);
  second.close();
});

Deno.test("Listener closes connections that never speak", async () => {
  await using test = await openTestListener({}, { limits: { handshakeTimeoutMs: 100 } });
  using silent = await connect(test.listener.port);
  using half = await connect(test.listener.port);
  await half.write(latin1("PRI * HT"));
  assert.equal(await silent.read(new Uint8Array(1)), null);
  assert.equal(await half.read(new Uint8Array(1)), null);
});

Deno.test("Listener holds memory of a chunked body of single bytes within four times its size", async () => {
  await using test = await openTestListener();
  using connection = await connect(test.listener.port);
  using other = await connect(test.listener.port);
  const piece = latin1("1\r\nx\r\n".repeat(50_000));
  const before = Deno.memoryUsage().rss;
  let peak = before;
  const sampler = setInterval(() => peak = Math.max(peak, Deno.memoryUsage().rss), 5);
  const flood = (async () => {
    await writeFully(
      connection,
      latin1("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
    );
    for (let round = 0; round < 60; round++) await writeFully(connection, piece);
  })().catch(() => {});
  assert.match(await exchangeText(other, CLOSING), /hello$/);
  assert.match(await exchangeText(connection, ""), /^HTTP\/1.1 400 [^]*65536 non-empty chunks/);
  await flood;
  clearInterval(sampler);
  assert.ok(peak - before < 4 * 18_000_000, `${peak - before} bytes more`);
  using single = await connect(test.listener.port);
  const body = "x".repeat(16_777_216);
  const answer = await exchangeText(
    single,
    "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1000000\r\n" +
      body + "\r\n0\r\n\r\n",
    /x{10}/,
  );
  assert.match(answer, /content-length: 16777216\r\n/);
});
