import assert from "node:assert/strict";
import { FrameType } from "../../server/transport/http2_frames.ts";
import { Http2Connection } from "../../server/transport/http2_connection.ts";
import type { HttpRequest, HttpResponse } from "../../server/transport/transport.ts";
import { CONFORMANCE_CASES, type ConformanceCase } from "./http2_conformance_cases.ts";
import {
  concat,
  errorCode,
  frame,
  FrameParser,
  type PeerFrame,
  PREFACE,
  settingsFrame,
} from "./http2_peer.ts";
import { MemoryConnection, settle } from "./memory_connection.ts";
import { createTestContext } from "./test_context.ts";

const LIMITS = { maxFrameBytes: 16_384, maxConcurrentStreams: 3, streamWindowBytes: 65_535 };
const PING_PAYLOAD = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);

/** Answers at once, except requests that ask to wait. */
const http = {
  handle: (request: HttpRequest): HttpResponse | Promise<HttpResponse> =>
    request.headers.get("x-wait") === undefined
      ? { status: 200, body: [request.body] }
      : new Promise<HttpResponse>(() => {}),
};

interface Outcome {
  readonly frames: PeerFrame[];
  readonly closed: boolean;
}

async function play(sent: readonly Uint8Array[], pieceBytes: number): Promise<Outcome> {
  const connection = new MemoryConnection();
  connection.maxReadBytes = pieceBytes;
  const server = new Http2Connection(connection, createTestContext({ http, limits: LIMITS }));
  const done = server.run(new Uint8Array(0));
  connection.feed(concat(PREFACE, settingsFrame()));
  for (const bytes of sent) {
    connection.feed(bytes);
    for (let turn = 0; turn < 1 + bytes.length / (100 * pieceBytes); turn++) await settle();
  }
  connection.feed(frame(FrameType.PING, { payload: PING_PAYLOAD }));
  await settle();
  const frames = new FrameParser().push(connection.takeOutput());
  const closed = connection.writeClosed || connection.closed;
  connection.feedEnd();
  await done;
  return { frames, closed };
}

function check({ outcome }: ConformanceCase, { frames, closed }: Outcome): void {
  const goaway = frames.find((found) => found.type === FrameType.GOAWAY);
  if ("goaway" in outcome) {
    assert.ok(goaway !== undefined && closed, "connection goes on");
    return assert.ok(
      outcome.goaway.includes(errorCode(goaway)),
      `GOAWAY with ${errorCode(goaway)}`,
    );
  }
  assert.equal(goaway, undefined, "connection ended");
  const pong = frames.find((found) => found.type === FrameType.PING && (found.flags & 1) === 1);
  assert.deepEqual(pong?.payload, PING_PAYLOAD);
  if ("reset" in outcome) {
    const reset = frames.find((found) =>
      found.type === FrameType.RST_STREAM && found.streamId === outcome.reset
    );
    assert.ok(reset !== undefined, "stream is not reset");
    return assert.ok(
      outcome.codes.includes(errorCode(reset)),
      `RST_STREAM with ${errorCode(reset)}`,
    );
  }
  for (const streamId of outcome.served) {
    const headers = frames.find((found) =>
      found.type === FrameType.HEADERS && found.streamId === streamId
    );
    assert.deepEqual(headers?.fields?.[0], [":status", "200"]);
  }
}

for (const conformanceCase of CONFORMANCE_CASES) {
  Deno.test(`Http2Connection, RFC 9113 and 7541: ${conformanceCase.name}`, async () => {
    for (const pieceBytes of [Infinity, 1]) {
      check(conformanceCase, await play(conformanceCase.send, pieceBytes));
    }
  });
}

Deno.test("Http2Connection starts with SETTINGS and refuses another first frame", async () => {
  const connection = new MemoryConnection();
  const server = new Http2Connection(connection, createTestContext());
  const done = server.run(PREFACE);
  await settle();
  const [first] = new FrameParser().push(connection.takeOutput());
  assert.equal(first?.type, FrameType.SETTINGS);
  assert.equal(first?.flags, 0);
  connection.feed(frame(FrameType.PING, { payload: PING_PAYLOAD }));
  connection.feedEnd();
  await done;
  const goaway = new FrameParser().push(connection.takeOutput()).at(-1)!;
  assert.equal(goaway.type, FrameType.GOAWAY);
  assert.equal(errorCode(goaway), 1);
});

Deno.test("Http2Connection refuses a wrong preface", async () => {
  const connection = new MemoryConnection();
  const server = new Http2Connection(connection, createTestContext());
  const done = server.run(PREFACE.subarray(0, 10));
  connection.feed("nonsense");
  connection.feedEnd();
  await done;
  assert.equal(new FrameParser().push(connection.takeOutput()).at(-1)?.type, FrameType.GOAWAY);
});
