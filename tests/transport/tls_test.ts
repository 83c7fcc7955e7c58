import assert from "node:assert/strict";
import { FrameType } from "../../server/transport/http2_frames.ts";
import { createTestCertificates, type TestCertificates } from "./certificates.ts";
import { dataFrame, GRPC_FIELDS, headersFrame, message, windowUpdate } from "./http2_peer.ts";
import { exchangeText, Http2Peer, isEnd, openTestListener } from "./socket_peer.ts";

const CLOSING = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
const certificates = await createTestCertificates();
const ignore = certificates === undefined;

function connect(
  port: number,
  { ca, clientCert, clientKey }: TestCertificates,
  options: { alpn?: string[]; withClient?: boolean } = {},
): Promise<Deno.TlsConn> {
  return Deno.connectTls({
    hostname: "localhost",
    port,
    caCerts: [ca],
    alpnProtocols: options.alpn ?? ["h2"],
    ...(options.withClient ? { cert: clientCert, key: clientKey } : {}),
  });
}

async function checkBothProtocols(port: number, withClient: boolean): Promise<void> {
  using plain = await connect(port, certificates!, { alpn: ["http/1.1"], withClient });
  assert.equal((await plain.handshake()).alpnProtocol, "http/1.1");
  assert.match(await exchangeText(plain, CLOSING), /hello$/);
  const connection = await connect(port, certificates!, { withClient });
  assert.equal((await connection.handshake()).alpnProtocol, "h2");
  using peer = await Http2Peer.open(connection, [4, 10_000_000]);
  const content = Uint8Array.from({ length: 300_000 }, (_, index) => index * 7 + (index >> 8));
  await peer.send(
    windowUpdate(0, 10_000_000),
    headersFrame(1, GRPC_FIELDS),
    dataFrame(1, message(content), 1),
  );
  const frames = await peer.readUntil(isEnd(1));
  const data = frames.filter((found) => found.type === FrameType.DATA);
  assert.deepEqual(Uint8Array.from(data.flatMap((found) => [...found.payload])), message(content));
}

Deno.test("openListener() serves both protocols over TLS", { ignore }, async () => {
  const { serverCert: cert, serverKey: key } = certificates!;
  const noDelayPorts: number[] = [];
  const setListenerNoDelay = (port: number) => void noDelayPorts.push(port);
  await using test = await openTestListener({}, { tls: { cert, key }, setListenerNoDelay });
  assert.deepEqual(noDelayPorts, [test.listener.port]);
  await checkBothProtocols(test.listener.port, false);
});

Deno.test("Listener survives clients that fail the TLS handshake", { ignore }, async () => {
  const { serverCert: cert, serverKey: key } = certificates!;
  await using test = await openTestListener({}, { tls: { cert, key } });
  const { port } = test.listener;
  for (let round = 0; round < 10; round++) {
    using plain = await Deno.connect({ hostname: "127.0.0.1", port });
    await exchangeText(plain, CLOSING);
    const untrusting = Deno.connectTls({ hostname: "localhost", port });
    await assert.rejects(untrusting.then((connection) => connection.handshake()));
  }
  await checkBothProtocols(port, false);
});

Deno.test("openListener() asks for client certificates with mutual TLS", { ignore }, async () => {
  const { serverCert: cert, serverKey: key, ca: clientCa } = certificates!;
  await using test = await openTestListener({}, { tls: { cert, key, clientCa } });
  const { port } = test.listener;
  await checkBothProtocols(port, true);
  const stranger = await connect(port, certificates!, { alpn: ["http/1.1"] });
  const answer = await exchangeText(stranger, CLOSING).catch(() => "");
  assert.equal(answer, "");
  stranger.close();
  await checkBothProtocols(port, true);
});

Deno.test(
  "openListener() lets a bounded number of clients wait with mutual TLS",
  { ignore },
  async () => {
    const { serverCert: cert, serverKey: key, ca: clientCa } = certificates!;
    await using test = await openTestListener({}, {
      tls: { cert, key, clientCa },
      limits: { maxConnections: 2 },
    });
    const options = { alpn: ["http/1.1"], withClient: true };
    const connections = [];
    for (let count = 0; count < 5; count++) {
      const connection = await connect(test.listener.port, certificates!, options);
      await connection.handshake();
      connections.push(connection);
    }
    // A client knows of its connection a little sooner than the server.
    await new Promise((resolve) => setTimeout(resolve, 100));
    const answers = await Promise.all(
      connections.map((connection) => exchangeText(connection, CLOSING).catch(() => "")),
    );
    for (const connection of connections) connection.close();
    // Two are served, two wait for their turn, and for one there is no place.
    assert.equal(answers.filter((answer) => answer.endsWith("hello")).length, 4);
  },
);
