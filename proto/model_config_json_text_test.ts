import { deepEqual, equal, throws } from "node:assert/strict";
import { parseModelConfigJsonText } from "./model_config_json_text.ts";

Deno.test("parseModelConfigJsonText() reads what JSON.parse() reads", () => {
  for (
    const text of [
      `{"a":[1,-2.5,3e2,0,"x\\n\\u00e4\\"\\\\\\/"],"b":{"c":null,"d":true},"e":[],"f":{}}`,
      ` [ ] `,
      `"text"`,
      `{"__proto__":{"x":1}}`,
    ]
  ) deepEqual(parseModelConfigJsonText(text), JSON.parse(text));
});

Deno.test("parseModelConfigJsonText() reads what only the reference takes", () => {
  const read = parseModelConfigJsonText;
  deepEqual(read(`{direct: {a_$1: 1}}`), { direct: { a_$1: 1 } });
  deepEqual(read(`{'a"': 'it\\'s', "b'": "x"}`), { 'a"': "it's", "b'": "x" });
  deepEqual(read(`{"a": [1, 2,], }`), { a: [1, 2] });
  deepEqual(read(`{"a": 4, "a": 8}`), { a: 8 });
  deepEqual(read(`["x\ty\\q"]`), ["x\tyq"]);
  deepEqual(read(`\ufeff{}`), {});
});

Deno.test("parseModelConfigJsonText() loses no digit of a whole number", () => {
  deepEqual(parseModelConfigJsonText(`[18446744073709551615, -9007199254740993, 5, 1.0]`), [
    "18446744073709551615",
    "-9007199254740993",
    5,
    1,
  ]);
});

Deno.test("parseModelConfigJsonText() tells where the text is wrong", () => {
  for (
    const [text, message] of [
      [``, "a value expected, got the end at line 1, column 1"],
      [`{"a":\n  [1 2]}`, `"," or "]" expected, got "2]}" at line 2, column 6`],
      [`{true: 1}`, `a key or "}" expected, got "true: 1}" at line 1, column 2`],
      [`{a-b: 1}`, `":" expected behind the key, got "-b: 1}" at line 1, column 3`],
      [`{a: abc}`, `a value expected, got "abc}" at line 1, column 5`],
      [`{a: +1}`, `a value expected, got "+1}" at line 1, column 5`],
      [`{a: 0x1}`, `0 is no number with the "x" behind it, got "x1}" at line 1, column 6`],
      [`{a: 01}`, `0 is no number with the "1" behind it, got "1}" at line 1, column 6`],
      [`{a: 1} x`, `the end of the text expected behind the value, got "x" at line 1, column 8`],
      [`{a: "x}`, `a string without closing quote, got "\\"x}" at line 1, column 5`],
      [`{,}`, `a key or "}" expected, got ",}" at line 1, column 2`],
      [
        `["\\u12"]`,
        `four hexadecimal digits expected behind "\\u", got "12\\"]" at line 1, column 5`,
      ],
      [`{a: 1 /* c */}`, `"," or "}" expected, got "/* c */}" at line 1, column 7`],
    ] as const
  ) throws(() => parseModelConfigJsonText(text), { name: "SyntaxError", message });
});

Deno.test("parseModelConfigJsonText() reads long and deep text within bounds", () => {
  const long = "x".repeat(1_000_000);
  equal((parseModelConfigJsonText(`["${long}"]`) as string[])[0], long);
  throws(() => parseModelConfigJsonText("[".repeat(1_000_000)), /at most 100 levels expected/);
});
