import assert from "node:assert/strict";
import { NumberToken, scanNumber } from "./json_number.ts";

const encoder = new TextEncoder();

function scan(text: string): NumberToken & { double: number; single: number } {
  const token = new NumberToken();
  const bytes = encoder.encode(text);
  scanNumber(bytes, 0, token);
  return Object.assign(token, {
    double: token.toDouble(bytes, 0),
    single: token.toSingle(bytes, 0),
  });
}

/** Numbers that look random and are the same in every run. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

Deno.test("scanNumber() gives the double that Number() gives, to the last bit", () => {
  const random = createRandom(1);
  const view = new DataView(new ArrayBuffer(8));
  const texts = ["0", "-0", "0.0", "1e22", "1e23", "9007199254740993", "0.1e-400", "123e-30"];
  for (let round = 0; round < 20_000; round++) {
    view.setUint32(0, random() * 2 ** 32);
    view.setUint32(4, random() * 2 ** 32);
    const any = view.getFloat64(0);
    if (Number.isFinite(any)) texts.push(String(any));
    texts.push(String(random()), String(Math.fround(random() * 1000 - 500)));
    texts.push((random() * 10 ** (random() * 30 - 15)).toPrecision(1 + Math.floor(random() * 21)));
    // The exact middle between two doubles: ties go to the even one.
    const middle = (BigInt(Math.floor(random() * 2 ** 52)) + (1n << 52n)) * 2n + 1n;
    texts.push(String(Math.fround(random()) * (1 + 2 ** -24)));
    texts.push(`${middle}`, `${middle * 5n ** 10n}`.replace(/(\d{10})$/, ".$1"));
  }
  for (const text of texts) {
    const token = scan(text);
    assert.equal(token.problem, "", text);
    assert.equal(token.end, text.length, text);
    assert.ok(Object.is(token.double, Number(text)), `${text} became ${token.double}`);
    assert.ok(Object.is(Math.fround(token.single), Math.fround(Number(text))), text);
  }
});

Deno.test("scanNumber() tells the number classes apart", () => {
  const cases: [string, boolean, boolean][] = [
    ["0", true, true],
    ["-0", true, true],
    ["-1", true, false],
    ["9223372036854775807", true, true],
    ["9223372036854775808", false, true],
    ["-9223372036854775808", true, false],
    ["-9223372036854775809", false, false],
    ["18446744073709551615", false, true],
    ["18446744073709551616", false, false],
    ["100000000000000000000", false, false],
    ["1.0", false, false],
    ["1e2", false, false],
  ];
  for (const [text, isInt64, isUint64] of cases) {
    const token = scan(text);
    assert.deepEqual([token.isInt64, token.isUint64], [isInt64, isUint64], text);
    if (isInt64 || isUint64) assert.equal(token.toBigInt(), BigInt(text));
  }
});

Deno.test("NumberToken.writeWords() writes two's complement", () => {
  const random = createRandom(2);
  const values = [0n, -1n, 2n ** 63n - 1n, -(2n ** 63n), 2n ** 64n - 1n, -(10n ** 15n), 10n ** 18n];
  for (let round = 0; round < 2000; round++) {
    values.push(
      BigInt.asIntN(64, BigInt(Math.floor(random() * 2 ** 53)) * BigInt(round * 977 + 1)),
    );
  }
  const words = new Uint32Array(2);
  for (const value of values) {
    scan(String(value)).writeWords(words, 0);
    const read = new BigUint64Array(words.buffer)[0];
    assert.equal(read, BigInt.asUintN(64, value));
  }
});

Deno.test("scanNumber() refuses what is no JSON number", () => {
  for (const text of ["-", "01", "-01", "1.", ".5", "+1", "1e", "1e+", "--1", ""]) {
    assert.notEqual(scan(text).problem, "", text);
  }
});
