import assert from "node:assert/strict";
import { fromLatin1, latin1 } from "../../tests/transport/memory_connection.ts";
import { ChunkDecoder } from "./http1_chunks.ts";

/** Decodes in pieces; returns the content, what was left over, and whether the body ended. */
function decode(text: string, pieceBytes = text.length) {
  const decoder = new ChunkDecoder();
  let content = "";
  const sizes: number[] = [];
  const sink = {
    begin: (byteSize: number) => void sizes.push(byteSize),
    content: (bytes: Uint8Array, start: number, end: number) => {
      content += fromLatin1(bytes.subarray(start, end));
    },
  };
  const bytes = latin1(text);
  let at = 0;
  while (at < bytes.length && !decoder.isDone) {
    const end = Math.min(bytes.length, at + pieceBytes);
    at = decoder.feed(bytes, { start: at, end }, sink);
  }
  return { content, sizes, isDone: decoder.isDone, rest: text.slice(at) };
}

Deno.test("ChunkDecoder decodes bodies split at every byte", () => {
  const text =
    '4\r\nabcd\r\n00A;ext="v"\r\n0123456789\r\n1 \r\nx\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\nnext';
  for (let pieceBytes = 1; pieceBytes <= text.length; pieceBytes++) {
    assert.deepEqual(decode(text, pieceBytes), {
      content: "abcd0123456789x",
      sizes: [4, 10, 1],
      isDone: true,
      rest: "next",
    });
  }
});

Deno.test("ChunkDecoder refuses malformed bodies", () => {
  const cases = [
    "\r\n",
    "xyz\r\n",
    "-1\r\n",
    "+1\r\n",
    "0x1\r\n",
    " 1\r\n",
    "1\n",
    "1\rX",
    "1;a\nb\r\n",
    "1;\x01\r\n",
    "3\r\nabcd\r\n",
    "3\r\nabc\n",
    "3\r\nabc\rX",
    "12345678901234\r\n",
    "0\r\n\n",
    "0\r\nX: a\n\r\n",
    "0\r\nX: a\rb",
    `0;${"e".repeat(5_000)}\r\n`,
    `0\r\n${"x: y\r\n".repeat(4_000)}\r\n`,
  ];
  for (const text of cases) {
    assert.throws(() => decode(text), { name: "HttpError" }, JSON.stringify(text.slice(0, 30)));
  }
});

Deno.test("ChunkDecoder.skipContent() goes on behind content that was read elsewhere", () => {
  const decoder = new ChunkDecoder();
  const sink = { begin: () => {}, content: () => assert.fail("content was skipped") };
  decoder.feed(latin1("5\r\n"), { start: 0, end: 3 }, sink);
  assert.equal(decoder.contentLeft, 5);
  decoder.skipContent(3);
  decoder.skipContent(2);
  assert.equal(decoder.contentLeft, 0);
  const end = latin1("\r\n0\r\n\r\n");
  assert.equal(decoder.feed(end, { start: 0, end: end.length }, sink), end.length);
  assert.equal(decoder.isDone, true);
});
