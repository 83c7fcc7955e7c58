import assert from "node:assert/strict";
import { JsonReader } from "./json_reader.ts";
import { type JsonValue, parseJson } from "./json_value.ts";
import { ServerError } from "./status.ts";

const encoder = new TextEncoder();

function parse(text: string): JsonValue {
  return parseJson(encoder.encode(text));
}

function messageOf(run: () => unknown): string {
  try {
    run();
  } catch (reason) {
    assert.ok(reason instanceof ServerError);
    assert.equal(reason.code, "INVALID_ARG");
    return reason.message;
  }
  return assert.fail("nothing was thrown");
}

Deno.test("parseJson() reads every kind of value", () => {
  const cases: [string, JsonValue][] = [
    [" null ", null],
    ["true", true],
    ["[false]", [false]],
    ["12", 12n],
    ["18446744073709551615", 18446744073709551615n],
    ["18446744073709551616", 18446744073709551616],
    ["1.0", 1],
    ["-1.5e+1", -15],
    ["[NaN,Inf,Infinity,-Inf,-Infinity]", [NaN, Infinity, Infinity, -Infinity, -Infinity]],
    ['"a\\"\\\\\\/\\b\\f\\n\\r\\t"', 'a"\\/\b\f\n\r\t'],
    ['"\\u0041\\u00e9\\ud83d\\ude00\\u0000"', "A\u00e9\u{1f600}\0"],
    ['"ä中😀"', "ä中😀"],
    ["[]", []],
    ["\t[ 1 ,\r\n[ ] ] ", [1n, []]],
    ["{}", new Map()],
    [
      '{"a":1,"b":{"c":[]},"a":2}',
      new Map<string, JsonValue>([
        ["a", 1n],
        ["b", new Map([["c", []]])],
      ]),
    ],
  ];
  for (const [text, value] of cases) assert.deepEqual(parse(text), value, text);
});

Deno.test("parseJson() says where malformed text begins", () => {
  const cases: [string, string][] = [
    ["", "The document is empty. at 0"],
    ["  ", "The document is empty. at 0"],
    ["hello", "Invalid value. at 0"],
    ["[1,]", "Invalid value. at 3"],
    ["[1 2]", "Missing a comma or ] after an array element. at 3"],
    ['{"a":1 "b":2}', "Missing a comma or } after an object member. at 7"],
    ["{a:1}", "Missing a name for object member. at 1"],
    ['{"a" 1}', "Missing a colon after a name of object member. at 5"],
    ["{} {}", "The document root must not be followed by other values. at 3"],
    ['"abc', "Missing a closing quotation mark in string. at 0"],
    ['"a\\', "Missing a closing quotation mark in string. at 0"],
    ['"\\x"', "Invalid escape character in string. at 2"],
    ['"\\u12g4"', "Incorrect hexadecimal digit in \\u escape. at 5"],
    ['"\\u12"', "Incomplete \\u escape in string. at 3"],
    ['"\\ud800"', "Surrogate without its other half in string. at 1"],
    ['"\\udc00\\ud800"', "Surrogate without its other half in string. at 1"],
    ['"a\nb"', "Control character in string. at 2"],
    ["1e999", "Number too big to be stored in double. at 0"],
    ["-NaN", "Invalid value. at 1"],
    ["[tru]", "Invalid value. at 1"],
    ["[1", "Missing a comma or ] after an array element. at 2"],
    ["[", "Invalid value. at 1"],
  ];
  for (const [text, problem] of cases) {
    assert.equal(
      messageOf(() => parse(text)),
      `failed to parse the request JSON buffer: ${problem}`,
      text,
    );
  }
});

Deno.test("parseJson() refuses bytes that are no UTF-8", () => {
  const bad = ["ff", "c080", "c3", "eda080", "f4908080", "e282", "80"];
  for (const hex of bad) {
    const bytes = [0x22, ...Uint8Array.from(hex.match(/../g)!, (pair) => parseInt(pair, 16)), 0x22];
    assert.match(
      messageOf(() => parseJson(Uint8Array.from(bytes))),
      /Invalid UTF-8 in string. at 1$/,
    );
  }
});

Deno.test("parseJson() accepts 100 levels and refuses 101", () => {
  assert.doesNotThrow(() => parse("[".repeat(100) + "]".repeat(100)));
  for (const text of ["[".repeat(101) + "]".repeat(101), '{"a":'.repeat(101), "[".repeat(1e6)]) {
    assert.equal(
      messageOf(() => parse(text)),
      "JSON nesting depth exceeds maximum allowed limit (100)",
    );
  }
});

Deno.test("JsonReader.skipValue() checks the syntax of what it passes over", () => {
  for (const text of ['["\\x"]', "[01]", '{"a":[1,{"b":nul}]}', '["\\ud800"]']) {
    assert.match(messageOf(() => new JsonReader(encoder.encode(text)).skipValue()), / at \d+$/);
  }
  const reader = new JsonReader(encoder.encode('{"a":["x",1,true,null,{}]} '));
  reader.skipValue();
  reader.finish();
});

Deno.test("parseJson() accepts 65536 values and refuses one more, skipValue() any number", () => {
  const text = (count: number) => `[${new Array(count).fill("{}").join(",")}]`;
  assert.doesNotThrow(() => parse(text(65_535)));
  const refusal = "request JSON has more than 65536 values";
  assert.equal(messageOf(() => parse(text(65_536))), refusal);
  assert.equal(messageOf(() => parse(`{${'"a":1,'.repeat(65_536)}"a":1}`)), refusal);
  const reader = new JsonReader(encoder.encode(text(100_000)));
  reader.skipValue();
  reader.finish();
});
