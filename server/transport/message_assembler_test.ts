import assert from "node:assert/strict";
import { concat, message } from "../../tests/transport/http2_peer.ts";
import { BufferPool } from "./buffer_pool.ts";
import { type AssembledStream, MessageAssembler } from "./message_assembler.ts";
import { MemoryAccount } from "./receive_buffer.ts";
import type { MessageRefusal, RpcStream } from "./transport.ts";

interface Received {
  readonly messages: { content: number[]; compressed: boolean }[];
  readonly refusals: MessageRefusal[];
  ends: number;
  resets: number;
}

function create(
  options: { maxMessageBytes?: number; maxBytes?: number; handlerMaps?: boolean } = {},
) {
  const pool = new BufferPool({ poison: true });
  const account = new MemoryAccount(pool, options.maxBytes ?? Infinity);
  const received: Received = { messages: [], refusals: [], ends: 0, resets: 0 };
  const stream: Partial<RpcStream> = {
    onMessage: (bytes, compressed, release) => {
      received.messages.push({ content: [...bytes], compressed });
      release();
    },
    onEnd: () => void received.ends++,
    onReset: () => void received.resets++,
  };
  if (options.handlerMaps) stream.onRefused = (refusal) => void received.refusals.push(refusal);
  const assembler = new MessageAssembler(stream as AssembledStream, {
    account,
    maxMessageBytes: options.maxMessageBytes ?? 1_000_000,
    refuse: (_stream, refusal) => void received.refusals.push(refusal),
  });
  return { assembler, received, pool, account };
}

const MESSAGES = concat(
  message(Uint8Array.of(1, 2, 3)),
  message(new Uint8Array(0)),
  message(Uint8Array.of(4), 1),
  message(Uint8Array.from({ length: 300 }, (_, index) => index)),
);

const EXPECTED = [
  { content: [1, 2, 3], compressed: false },
  { content: [], compressed: false },
  { content: [4], compressed: true },
  { content: [...Uint8Array.from({ length: 300 }, (_, index) => index)], compressed: false },
];

Deno.test("MessageAssembler puts messages together, split at every byte", () => {
  for (let split = 0; split <= MESSAGES.length; split++) {
    const { assembler, received, pool } = create();
    assembler.data(MESSAGES, 0, split);
    assembler.data(MESSAGES, split, MESSAGES.length);
    assembler.end();
    assert.deepEqual(received.messages, EXPECTED, `split at ${split}`);
    assert.equal(received.ends, 1);
    assert.equal(pool.outstandingCount, 0);
    assert.equal(pool.chargedBytes, 0);
  }
});

Deno.test("MessageAssembler puts messages together from pieces of every size", () => {
  for (let pieceBytes = 1; pieceBytes < 40; pieceBytes++) {
    const { assembler, received } = create();
    for (let at = 0; at < MESSAGES.length; at += pieceBytes) {
      assembler.data(MESSAGES, at, Math.min(MESSAGES.length, at + pieceBytes));
    }
    assert.deepEqual(received.messages, EXPECTED);
  }
});

Deno.test("MessageAssembler takes direct reads into the message", () => {
  const { assembler, received } = create();
  const content = Uint8Array.from({ length: 100_000 }, (_, index) => index * 7);
  const bytes = message(content);
  assert.equal(assembler.directRoom(100), undefined);
  assembler.data(bytes, 0, 1_000);
  let at = 1_000;
  while (at < bytes.length) {
    const room = assembler.directRoom(30_000)!;
    room.set(bytes.subarray(at, at + room.length));
    assembler.directFilled(room.length);
    at += room.length;
  }
  assert.deepEqual(received.messages[0]!.content, [...content]);
});

Deno.test("MessageAssembler refuses a message over the limit at its prefix", () => {
  for (const handlerMaps of [true, false]) {
    const { assembler, received, account } = create({ maxMessageBytes: 10, handlerMaps });
    const bytes = message(new Uint8Array(11));
    assembler.data(bytes, 0, 5);
    assert.equal(received.refusals.length, 1);
    assert.equal(received.refusals[0]!.reason, "too_large");
    assert.equal(received.refusals[0]!.byteSize, 11);
    assert.match(received.refusals[0]!.message, /11 vs\. 10/);
    assembler.data(bytes, 5, bytes.length);
    assembler.end();
    assert.equal(received.messages.length + received.ends, 0);
    assert.equal(account.usedBytes, 0);
  }
  const { assembler, received } = create({ maxMessageBytes: 10 });
  assembler.data(message(new Uint8Array(10)), 0, 15);
  assert.equal(received.messages.length, 1);
});

Deno.test("MessageAssembler refuses bad flags, and ends inside a message", () => {
  const flags = create();
  flags.assembler.data(Uint8Array.of(2, 0, 0, 0, 0), 0, 5);
  assert.equal(flags.received.refusals[0]!.reason, "malformed");
  for (let length = 1; length < 8; length++) {
    const { assembler, received, pool } = create();
    assembler.data(message(Uint8Array.of(1, 2, 3)).subarray(0, length), 0, length);
    assembler.end();
    assert.equal(received.refusals[0]!.reason, "malformed", `${length} bytes`);
    assert.equal(received.ends, 0);
    assert.equal(pool.outstandingCount, 0);
  }
});

Deno.test("MessageAssembler refuses a message for which the quota has no room", () => {
  const { assembler, received, account } = create({ maxBytes: 100_000 });
  const bytes = message(new Uint8Array(500_000));
  assembler.data(bytes, 0, bytes.length);
  assert.equal(received.refusals[0]!.reason, "no_memory");
  assert.equal(account.usedBytes, 0);
});

Deno.test("MessageAssembler gives the buffer of an unfinished message back", () => {
  const { assembler, received, pool } = create();
  assembler.data(message(new Uint8Array(100)), 0, 50);
  assembler.reset();
  assert.equal(received.resets, 1);
  assert.equal(pool.outstandingCount, 0);
});

Deno.test("MessageAssembler keeps the buffer while a direct read is under way", () => {
  const { assembler, pool } = create();
  assembler.data(message(new Uint8Array(100_000)), 0, 50);
  assembler.directRoom(50_000);
  assembler.reset();
  assert.equal(pool.outstandingCount, 1);
  assembler.directFilled(0);
  assert.equal(pool.outstandingCount, 0);
});
