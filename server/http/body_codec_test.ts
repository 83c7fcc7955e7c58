import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { deflateSync, gunzipSync, gzipSync } from "node:zlib";
import { BodyCodec } from "./body_codec.ts";

const LIMIT = 64 * 1024 * 1024;

Deno.test("BodyCodec.inflate() reads gzip and zlib, short ones at once", () => {
  using codec = new BodyCodec();
  const text = new TextEncoder().encode("tensor".repeat(1000));
  assert.deepEqual(codec.inflate(gzipSync(text), LIMIT), text);
  assert.deepEqual(codec.inflate(deflateSync(text), LIMIT), text);
});

Deno.test("BodyCodec.inflate() refuses what is cut off or no compression at all", () => {
  using codec = new BodyCodec();
  const cut = gzipSync(new Uint8Array(1000)).subarray(0, 15);
  for (const bytes of [cut, new Uint8Array(0), new TextEncoder().encode("{}")]) {
    assert.throws(() => codec.inflate(bytes, LIMIT), {
      code: "INVALID_ARG",
      message: /^Unable to decompress request body: /,
    });
  }
});

Deno.test("BodyCodec.inflate() takes no size from data that are cut off or go on", () => {
  using codec = new BodyCodec();
  const whole = gzipSync(new TextEncoder().encode("tensor".repeat(10)));
  const longer = Uint8Array.of(...whole, 0xff, 0xff, 0xff, 0x7f);
  for (const bytes of [whole.subarray(0, -5), longer]) {
    bytes.set([0xff, 0xff, 0xff, 0x7f], bytes.length - 4);
    assert.throws(() => codec.inflate(bytes, LIMIT), {
      code: "INVALID_ARG",
      message: /^Unable to decompress request body: /,
    });
  }
});

Deno.test("BodyCodec.inflate() reads long bodies on its thread", async () => {
  using codec = new BodyCodec();
  const bytes = new Uint8Array(3_000_000).map((_, index) => index * index);
  const inflating = codec.inflate(gzipSync(bytes), LIMIT);
  assert.ok(inflating instanceof Promise);
  assert.ok(Buffer.from(bytes).equals(await inflating));
});

Deno.test("BodyCodec.inflate() stops a bomb at the limit", async () => {
  using codec = new BodyCodec();
  // 1000 members of a megabyte of zeros each.
  const member = gzipSync(new Uint8Array(1 << 20));
  const bomb = new Uint8Array(member.length * 1000);
  for (let index = 0; index < 1000; index++) bomb.set(member, index * member.length);
  await assert.rejects(async () => await codec.inflate(bomb, 4 << 20), {
    code: "INVALID_ARG",
    message: `Decompressed data size exceeds the maximum allowed value of ${4 << 20} bytes. ` +
      `Use --http-max-input-size to increase the limit.`,
  });
  assert.throws(() => codec.inflate(member, 1000), { message: /maximum allowed value of 1000/ });
});

Deno.test("BodyCodec.deflate() joins the parts, long ones on its thread", async () => {
  using codec = new BodyCodec();
  const parts = [new Uint8Array(100).fill(1), new Uint8Array(200_000).fill(2)];
  const long = await codec.deflate(parts, "gzip");
  assert.ok(gunzipSync(long).equals(Buffer.concat(parts)));
  assert.ok(codec.deflate(parts.slice(0, 1), "deflate") instanceof Uint8Array);
});

Deno.test("BodyCodec.decode() gives the same on its thread", async () => {
  using codec = new BodyCodec();
  const data = Array.from({ length: 300_000 }, (_, index) => index % 7 + 0.25);
  const json = JSON.stringify({
    inputs: [
      { name: "I", datatype: "FP32", shape: [data.length], data },
      { name: "B", datatype: "UINT8", shape: [2], parameters: { binary_data_size: 2 } },
    ],
  });
  const body = new TextEncoder().encode(json + "zz");
  const target = {
    modelName: "m",
    modelVersion: "",
    maxInputBytes: LIMIT,
    headerLength: json.length,
  };
  const decoding = codec.decode(body, target);
  assert.ok(decoding instanceof Promise);
  await decoding;
  // What one job gave away must not be missing in the next.
  const { request } = await codec.decode(body, target);
  const [floats, bytes] = request.inputs;
  const expected = Buffer.from(Float32Array.from(data).buffer);
  assert.ok(expected.equals(floats!.data));
  assert.deepEqual(bytes!.data, Uint8Array.of(0x7a, 0x7a));
  const broken = new TextEncoder().encode(json.replace("]", "}"));
  await assert.rejects(
    async () => await codec.decode(broken, { ...target, headerLength: undefined }),
    { code: "INVALID_ARG", message: /^failed to parse the request JSON buffer/ },
  );
});

Deno.test("BodyCodec.encode() gives the same on its thread", async () => {
  using codec = new BodyCodec();
  const data = new Uint8Array(200_000).map((_, index) => index);
  const response = {
    modelName: "m",
    modelVersion: "1",
    id: "",
    parameters: { n: 5n },
    outputs: [{ name: "O", datatype: "UINT8" as const, shape: [data.length], data }],
  };
  const decoded = await codec.decode(new TextEncoder().encode('{"inputs":[]}'), {
    modelName: "m",
    modelVersion: "",
    maxInputBytes: LIMIT,
  });
  const encoding = codec.encode(response, decoded);
  assert.ok(encoding instanceof Promise);
  const { parts, headerLength } = await encoding;
  assert.equal(headerLength, undefined);
  const { outputs, parameters } = JSON.parse(new TextDecoder().decode(parts[0]));
  assert.deepEqual(parameters, { n: 5 });
  assert.ok(Buffer.from(outputs[0].data).equals(data));
  assert.equal(data[5], 5, "the output still belongs to its owner");
});

Deno.test("disposing a BodyCodec fails what waits and what comes later", async () => {
  const codec = new BodyCodec();
  const waiting = codec.deflate([new Uint8Array(200_000)], "gzip") as Promise<Uint8Array>;
  codec[Symbol.dispose]();
  const late = codec.deflate([new Uint8Array(200_000)], "gzip") as Promise<Uint8Array>;
  for (const work of [waiting, late]) {
    await assert.rejects(work, { code: "UNAVAILABLE", message: "Server exiting" });
  }
});
