import { Code, ConnectError } from "@connectrpc/connect";
import assert from "node:assert/strict";
import { deflateSync, gunzipSync, gzipSync, inflateSync } from "node:zlib";
import { joinParts } from "../../proto/join_parts.ts";
import { MessageCompression, messageEncoding, responseEncoding } from "./message_compression.ts";

const LIMITS = { maxMessageBytes: 300 * 1024 * 1024, maxInflatedBytes: 400 * 1024 * 1024 };

function noise(byteSize: number): Uint8Array {
  let seed = 1;
  return new Uint8Array(byteSize).map(() => seed = (seed * 48271) % 2147483647);
}

async function codeOf(run: () => unknown): Promise<Code | undefined> {
  try {
    await run();
  } catch (error) {
    return error instanceof ConnectError ? error.code : undefined;
  }
  return undefined;
}

Deno.test("inflate() restores gzip and deflate messages of every size", async () => {
  const compression = new MessageCompression(LIMITS);
  for (const message of [noise(0), noise(100), noise(300_000), new Uint8Array(5_000_000)]) {
    for (const encoding of ["gzip", "deflate"] as const) {
      const compressed = encoding === "gzip" ? gzipSync(message) : deflateSync(message);
      let released = 0;
      const inflated = await compression.inflate(encoding, compressed, () => released++);
      assert.equal(released, 1);
      assert.deepEqual(inflated.message.length, message.length);
      assert.equal(inflated.message.every((byte, index) => byte === message[index]), true);
      inflated.release();
    }
  }
});

Deno.test("inflate() refuses corrupt and truncated data", async () => {
  const compression = new MessageCompression(LIMITS);
  const small = gzipSync(noise(1000));
  const large = gzipSync(noise(300_000));
  const broken = large.slice();
  broken.fill(0, 1000, 2000);
  for (const message of [noise(50), small.subarray(0, 500), large.subarray(0, 200_000), broken]) {
    let released = 0;
    assert.equal(
      await codeOf(() => compression.inflate("gzip", message, () => released++)),
      Code.Internal,
    );
    assert.equal(released, 1);
  }
});

Deno.test("inflate() stops at its bounds", async () => {
  const bomb = gzipSync(new Uint8Array(130 * 1024 * 1024), { level: 1 });
  const compression = new MessageCompression(LIMITS);
  const run = () => compression.inflate("gzip", bomb, () => {});
  assert.equal(await codeOf(run), Code.ResourceExhausted);
  const tight = new MessageCompression({ ...LIMITS, maxMessageBytes: 1000 });
  const more = gzipSync(new Uint8Array(1001));
  assert.equal(await codeOf(() => tight.inflate("gzip", more, () => {})), Code.ResourceExhausted);
  const total = new MessageCompression({ ...LIMITS, maxInflatedBytes: 3_000_000 });
  const two = gzipSync(new Uint8Array(2_000_000));
  const first = await total.inflate("gzip", two, () => {});
  assert.equal(await codeOf(() => total.inflate("gzip", two, () => {})), Code.ResourceExhausted);
  first.release();
  assert.equal(await codeOf(() => total.inflate("gzip", two, () => {})), undefined);
});

Deno.test("deflate() writes what clients read", async () => {
  const compression = new MessageCompression(LIMITS);
  for (const message of [noise(100), noise(2_000_000)]) {
    const parts = [message.subarray(0, 50), message.subarray(50)];
    const gzip = joinParts(await compression.deflate("gzip", "low", parts));
    assert.deepEqual(new Uint8Array(gunzipSync(gzip)), message);
    const deflate = joinParts(await compression.deflate("deflate", "high", parts));
    assert.deepEqual(new Uint8Array(inflateSync(deflate)), message);
  }
});

Deno.test("encodings are negotiated", () => {
  assert.equal(messageEncoding(undefined), undefined);
  assert.equal(messageEncoding("identity"), undefined);
  assert.equal(messageEncoding("deflate"), "deflate");
  assert.throws(() => messageEncoding("br"), { code: Code.Unimplemented });
  assert.equal(responseEncoding("none", "gzip"), undefined);
  assert.equal(responseEncoding("low", "identity, deflate, gzip"), "gzip");
  assert.equal(responseEncoding("low", "deflate"), "deflate");
  assert.equal(responseEncoding("low", "identity"), undefined);
  assert.equal(responseEncoding("low", undefined), undefined);
});
