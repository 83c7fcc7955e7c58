import assert from "node:assert/strict";
import { Http1Connection } from "../../server/transport/http1.ts";
import { Http2Connection } from "../../server/transport/http2_connection.ts";
import { FrameFlag, FrameType } from "../../server/transport/http2_frames.ts";
import type { HttpRequest, RpcStream } from "../../server/transport/transport.ts";
import {
  concat,
  dataFrame,
  frame,
  GRPC_FIELDS,
  headersFrame,
  message,
  POST_FIELDS,
  PREFACE,
  settingsFrame,
  windowUpdate,
} from "./http2_peer.ts";
import { latin1, MemoryConnection, settle } from "./memory_connection.ts";
import { createTestContext } from "./test_context.ts";

const ROUNDS = 400;

/** Small seeded generator (mulberry32): the same bytes in every run. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Changes, removes, repeats or inserts a few bytes. */
function mutate(bytes: Uint8Array, random: () => number): Uint8Array {
  let mutant = bytes.slice();
  const count = 1 + Math.floor(random() * 4);
  for (let round = 0; round < count; round++) {
    const at = Math.floor(random() * mutant.length);
    const length = Math.floor(random() * 20);
    switch (Math.floor(random() * 5)) {
      case 0:
        if (mutant.length > 0) mutant[at] = Math.floor(random() * 256);
        break;
      case 1:
        if (mutant.length > 0) mutant[at]! ^= 1 << Math.floor(random() * 8);
        break;
      case 2:
        mutant = concat(mutant.subarray(0, at), mutant.subarray(at + length));
        break;
      case 3:
        mutant = concat(mutant.subarray(0, at + length), mutant.subarray(at));
        break;
      default:
        mutant = concat(mutant.subarray(0, at), randomBytes(length, random), mutant.subarray(at));
    }
  }
  return mutant;
}

function randomBytes(length: number, random: () => number): Uint8Array {
  return Uint8Array.from({ length }, () => Math.floor(random() * 256));
}

function pick<Value>(values: readonly Value[], random: () => number): Value {
  return values[Math.floor(random() * values.length)]!;
}

const BIG = new Uint8Array(70_000).fill(9);

const HTTP1_SEEDS: readonly Uint8Array[] = [
  "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
  "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
  "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nabcd\r\nA\r\n0123456789\r\n0\r\nT: 1\r\n\r\n",
  "GET http://a/b HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /stream HTTP/1.1\r\nHost: a\r\n\r\n",
  "POST /early HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
].map(latin1).concat(
  concat(latin1("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 70000\r\n\r\n"), BIG),
);

const HTTP2_SEEDS: readonly (readonly Uint8Array[])[] = [
  [
    headersFrame(1, GRPC_FIELDS),
    dataFrame(1, message(latin1("hello"))),
    dataFrame(1, message(BIG), 1),
  ],
  [headersFrame(1, POST_FIELDS), dataFrame(1, latin1("hello"), 1), headersFrame(3, POST_FIELDS, 5)],
  [
    settingsFrame([4, 10], [5, 20_000]),
    headersFrame(1, GRPC_FIELDS),
    dataFrame(1, message(latin1("x")), 1),
    windowUpdate(1, 1_000),
    windowUpdate(0, 1_000),
  ],
  [
    frame(FrameType.HEADERS, {
      streamId: 1,
      payload: headersFrame(1, GRPC_FIELDS).subarray(9, 40),
    }),
    frame(FrameType.CONTINUATION, {
      streamId: 1,
      flags: FrameFlag.END_HEADERS,
      payload: headersFrame(1, GRPC_FIELDS).subarray(40),
    }),
    frame(FrameType.RST_STREAM, { streamId: 1, payload: new Uint8Array(4) }),
  ],
  [
    frame(FrameType.PING, { payload: new Uint8Array(8) }),
    frame(FrameType.GOAWAY, { payload: new Uint8Array(8) }),
  ],
];

const http = {
  admit: (head: { target: string }) => head.target === "/early" ? { status: 404 } : undefined,
  handle: async (request: HttpRequest) => {
    await Promise.resolve();
    if (request.target !== "/stream") return { status: 200, body: [request.body] };
    return {
      status: 200,
      body: (async function* () {
        yield await Promise.resolve(latin1("part"));
      })(),
    };
  },
};

const rpc = {
  maxMessageBytes: 100_000,
  open: (stream: RpcStream) => {
    stream.sendHeaders([["content-type", "application/grpc"]]);
    stream.onMessage = (bytes, _compressed, release) =>
      stream.send([message(bytes).subarray(0, 5), bytes], release);
    stream.onEnd = () => stream.finish([["grpc-status", "0"]]);
  },
};

/** Runs one connection on `bytes`: it must end by itself when the peer does, and give back all memory. */
async function survive(
  kind: "http1" | "http2",
  bytes: Uint8Array,
  random: () => number,
): Promise<void> {
  const connection = new MemoryConnection();
  connection.maxReadBytes = pick([1, 7, 100, 40_000, Infinity], random);
  connection.maxWriteBytes = pick([3, 1_000, Infinity], random);
  const limits = { lingerMs: 0, halfCloseGraceMs: 0, maxHeadBytes: 8_192, maxBodyBytes: 1_000_000 };
  const context = createTestContext({ http, rpc, limits });
  const server = kind === "http1"
    ? new Http1Connection(connection, context)
    : new Http2Connection(connection, context);
  const done = server.run(new Uint8Array(0));
  connection.feed(bytes);
  if (random() < 0.5) await settle();
  if (random() < 0.2) connection.feedError();
  else connection.feedEnd();
  await done;
  await settle();
  assert.equal(connection.closed, true);
  assert.equal(context.pool.outstandingCount, 0);
  assert.equal(context.pool.chargedBytes, 0);
  assert.deepEqual(context.faults, []);
}

async function fuzz(
  kind: "http1" | "http2",
  next: (random: () => number) => Uint8Array,
): Promise<void> {
  for (let seed = 1; seed <= ROUNDS; seed++) {
    const random = createRandom(seed);
    const bytes = next(random);
    try {
      await survive(kind, bytes, random);
    } catch (error) {
      throw new Error(`Seed ${seed} failed with ${kind}`, { cause: error });
    }
  }
}

Deno.test("Http1Connection survives mutated requests", async () => {
  await fuzz("http1", (random) => {
    const requests = Array.from(
      { length: 1 + Math.floor(random() * 3) },
      () => pick(HTTP1_SEEDS, random),
    );
    return mutate(concat(...requests), random);
  });
});

Deno.test("Http1Connection survives random bytes", async () => {
  await fuzz("http1", (random) => randomBytes(Math.floor(random() * 300), random));
});

Deno.test("Http2Connection survives mutated frames", async () => {
  await fuzz(
    "http2",
    (random) =>
      concat(PREFACE, settingsFrame(), mutate(concat(...pick(HTTP2_SEEDS, random)), random)),
  );
});

Deno.test("Http2Connection survives frames in random order and with random payloads", async () => {
  await fuzz("http2", (random) => {
    const frames = Array.from({ length: Math.floor(random() * 12) }, () => {
      if (random() < 0.5) return pick(HTTP2_SEEDS.flat(), random);
      return frame(Math.floor(random() * 11), {
        flags: Math.floor(random() * 256),
        streamId: Math.floor(random() * 6),
        payload: randomBytes(Math.floor(random() * 40), random),
      });
    });
    return concat(PREFACE, settingsFrame(), ...frames);
  });
});

Deno.test("Http2Connection survives random bytes", async () => {
  await fuzz(
    "http2",
    (random) => concat(PREFACE, settingsFrame(), randomBytes(Math.floor(random() * 300), random)),
  );
});
