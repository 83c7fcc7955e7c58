import assert from "node:assert/strict";
import { encodeFrame, FRAME_BYTE_SIZE_MAX, frameByteSizeBound, FrameReader } from "./frame.ts";

interface Given {
  readonly kind: number;
  readonly id: number;
  readonly json: string;
  readonly parts?: readonly Uint8Array[];
}

function encode({ kind, id, json, parts = [] }: Given): Uint8Array<ArrayBuffer> {
  const byteSize = parts.reduce((size, part) => size + part.length, 0);
  const payload = { parts, byteSize };
  const bytes = new Uint8Array(frameByteSizeBound(json, payload));
  return bytes.slice(0, encodeFrame(bytes, { kind, id, json, payload }));
}

function head(length: number, jsonByteSize: number): Uint8Array {
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, length, true);
  view.setUint32(4, 20, true);
  view.setUint32(12, jsonByteSize, true);
  return bytes;
}

/** Feeds bytes in pieces of at most so many; returns all frames. */
function readAll(bytes: Uint8Array, step: number) {
  const reader = new FrameReader();
  const frames = [];
  for (let start = 0; start < bytes.length;) {
    const room = reader.room();
    const piece = bytes.subarray(start, start + Math.min(step, room.length));
    assert.ok(piece.length > 0);
    room.set(piece);
    reader.received(piece.length);
    start += piece.length;
    for (let frame = reader.next(); frame !== undefined; frame = reader.next()) frames.push(frame);
  }
  return frames;
}

function concat(...parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let end = 0;
  for (const part of parts) {
    bytes.set(part, end);
    end += part.length;
  }
  return bytes;
}

const LARGE = new Uint8Array(300_000).map((_, index) => index);

const GIVEN: readonly Given[] = [
  { kind: 21, id: 0, json: "" },
  { kind: 7, id: 0xffff_ffff, json: '{"r":[{"id":"ä€😀"}]}' },
  { kind: 9, id: 7, json: '{"l":true}', parts: [Uint8Array.of(1, 2), Uint8Array.of(3)] },
  { kind: 14, id: 8, json: "{}", parts: [LARGE] },
  { kind: 19, id: 9, json: '{"v":false}' },
];

for (const step of [1, 7, 1000, 1_000_000]) {
  Deno.test(`FrameReader gives back what encodeFrame() wrote, read in pieces of ${step}`, () => {
    const frames = readAll(concat(...GIVEN.map(encode)), step);
    assert.equal(frames.length, GIVEN.length);
    frames.forEach((frame, index) => {
      const { kind, id, json, parts = [] } = GIVEN[index]!;
      assert.equal(frame.kind, kind);
      assert.equal(frame.id, id);
      assert.deepEqual(frame.json, JSON.parse(json || "{}"));
      assert.ok(frame.payload.length === concat(...parts).length);
      assert.deepEqual(frame.payload, concat(...parts));
    });
  });
}

Deno.test("payloads are not touched by what is read later", () => {
  const first = encode({ kind: 9, id: 1, json: "", parts: [Uint8Array.of(1, 2, 3)] });
  const second = encode({ kind: 9, id: 2, json: "", parts: [Uint8Array.of(9, 9, 9)] });
  const frames = readAll(concat(first, second), first.length);
  assert.deepEqual(frames[0]!.payload, Uint8Array.of(1, 2, 3));
});

const BROKEN: readonly [string, Uint8Array][] = [
  ["a length beyond the limit", head(FRAME_BYTE_SIZE_MAX + 1, 0)],
  ["JSON beyond the limit", head(FRAME_BYTE_SIZE_MAX, 16 * 1024 * 1024 + 1)],
  ["JSON that ends behind the frame", concat(head(4, 5), new Uint8Array(4))],
  ["text that is no JSON", concat(head(3, 3), new TextEncoder().encode("NaN"))],
  ["JSON that is no object", concat(head(2, 2), new TextEncoder().encode("[]"))],
  ["bytes that are no UTF-8", concat(head(2, 2), Uint8Array.of(0xff, 0xfe))],
];

for (const [what, bytes] of BROKEN) {
  Deno.test(`FrameReader refuses ${what}`, () => {
    assert.throws(() => readAll(bytes, bytes.length));
  });
}

Deno.test("a length alone makes FrameReader take no memory for it", () => {
  const reader = new FrameReader();
  reader.room().set(head(FRAME_BYTE_SIZE_MAX, 0));
  reader.received(16);
  assert.equal(reader.next(), undefined);
  assert.ok(reader.room().length <= 256 * 1024);
});
