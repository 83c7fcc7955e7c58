import assert from "node:assert/strict";
import { encodeHeaderBlock, HpackDecoder, HpackError } from "./hpack.ts";

function hex(text: string): Uint8Array {
  const digits = text.replaceAll(/\s/g, "");
  return Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

function createDecoder(limits: { maxListBytes?: number; maxFieldCount?: number } = {}) {
  return new HpackDecoder({ maxListBytes: 65_536, maxFieldCount: 100, ...limits });
}

const REQUESTS = [
  [[":method", "GET"], [":scheme", "http"], [":path", "/"], [":authority", "www.example.com"]],
  [
    [":method", "GET"],
    [":scheme", "http"],
    [":path", "/"],
    [":authority", "www.example.com"],
    ["cache-control", "no-cache"],
  ],
  [
    [":method", "GET"],
    [":scheme", "https"],
    [":path", "/index.html"],
    [":authority", "www.example.com"],
    ["custom-key", "custom-value"],
  ],
];

const DATE = "Mon, 21 Oct 2013 20:13:21 GMT";
const LATER = "Mon, 21 Oct 2013 20:13:22 GMT";
const COOKIE = "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
const LOCATION = "https://www.example.com";
const RESPONSES = [
  [[":status", "302"], ["cache-control", "private"], ["date", DATE], ["location", LOCATION]],
  [[":status", "307"], ["cache-control", "private"], ["date", DATE], ["location", LOCATION]],
  [
    [":status", "200"],
    ["cache-control", "private"],
    ["date", LATER],
    ["location", LOCATION],
    ["content-encoding", "gzip"],
    ["set-cookie", COOKIE],
  ],
];

Deno.test("HpackDecoder decodes the single fields of RFC 7541 C.2", () => {
  const cases: [string, string[]][] = [
    ["400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572", [
      "custom-key",
      "custom-header",
    ]],
    ["040c 2f73 616d 706c 652f 7061 7468", [":path", "/sample/path"]],
    ["1008 7061 7373 776f 7264 0673 6563 7265 74", ["password", "secret"]],
    ["82", [":method", "GET"]],
  ];
  for (const [bytes, field] of cases) {
    assert.deepEqual(createDecoder().decode(hex(bytes)).fields, [field]);
  }
});

Deno.test("HpackDecoder decodes the requests of RFC 7541 C.3 and C.4", () => {
  const plain = [
    "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
    "8286 84be 5808 6e6f 2d63 6163 6865",
    "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
  ];
  const huffman = [
    "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
    "8286 84be 5886 a8eb 1064 9cbf",
    "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
  ];
  for (const blocks of [plain, huffman]) {
    const decoder = createDecoder();
    blocks.forEach((block, index) =>
      assert.deepEqual(decoder.decode(hex(block)).fields, REQUESTS[index])
    );
  }
});

Deno.test("HpackDecoder evicts like RFC 7541 C.5 and C.6", () => {
  const plain = [
    "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 " +
    "3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
    "4803 3330 37c1 c0bf",
    "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a " +
    "6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d " +
    "6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
  ];
  const huffman = [
    "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d " +
    "29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
    "4883 640e ffc1 c0bf",
    "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d " +
    "d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 " +
    "3d50 07",
  ];
  for (const blocks of [plain, huffman]) {
    const decoder = createDecoder();
    // The examples work with a table of 256 bytes.
    decoder.decode(hex("3fe101"));
    blocks.forEach((block, index) =>
      assert.deepEqual(decoder.decode(hex(block)).fields, RESPONSES[index])
    );
  }
});

Deno.test("HpackDecoder refuses blocks that cannot be decoded", () => {
  const cases: Record<string, string> = {
    "index 0": "80",
    "index behind the tables": "be",
    "name index behind the tables": "7f2001 61",
    "table size over the limit": "3fe23f",
    "table size update after a field": "8220",
    "integer that never ends": "ff8080808080808080",
    "block that ends in an integer": "ff80",
    "string longer than the block": "0085",
    "block that ends before a value": "000161",
    "Huffman padding of 8 bits": "0001 6182 1fff",
    "Huffman padding with zeros": "0001 6181 18",
    "Huffman end of string": "0001 6184 ffff ffff",
  };
  for (const [name, bytes] of Object.entries(cases)) {
    assert.throws(() => createDecoder().decode(hex(bytes)), HpackError, name);
  }
});

Deno.test("HpackDecoder marks malformed fields, also when they come from the table", () => {
  const decoder = createDecoder();
  const indexedUpperCase = hex("40 01 41 01 62");
  assert.equal(decoder.decode(indexedUpperCase).malformed, true);
  assert.equal(decoder.decode(hex("be")).malformed, true, "whole entry");
  assert.equal(decoder.decode(hex("7e 01 62")).malformed, true, "its name");
  assert.equal(decoder.decode(hex("82")).malformed, false);
  for (const value of ["a\rb", "a\nb", "a\0b"]) {
    assert.equal(createDecoder().decode(encodeHeaderBlock([["a", value]])).malformed, true, value);
  }
});

Deno.test("HpackDecoder stops collecting at its limits but keeps the table right", () => {
  const decoder = createDecoder({ maxListBytes: 200 });
  const bomb = new Uint8Array(1_000).fill(0xbe);
  decoder.decode(encodeIndexed("x-big", "a".repeat(100)));
  const decoded = decoder.decode(bomb);
  assert.equal(decoded.tooLarge, true);
  assert.equal(decoded.fields.length, 1);
  assert.deepEqual(decoder.decode(hex("be")).fields, [["x-big", "a".repeat(100)]]);
  const many = createDecoder({ maxFieldCount: 3 }).decode(hex("82828282"));
  assert.equal(many.tooLarge, true);
  assert.equal(many.fields.length, 3);
});

Deno.test("encodeHeaderBlock() makes what the decoder reads", () => {
  const fields: [string, string][] = [
    [":status", "200"],
    [":status", "418"],
    ["empty", ""],
    ["long", "v".repeat(20_000)],
    ["exactly-127", "v".repeat(127)],
    ["latin", "\xe9\xff"],
  ];
  const decoded = createDecoder().decode(encodeHeaderBlock(fields));
  assert.deepEqual(decoded.fields, fields);
});

function encodeIndexed(name: string, value: string): Uint8Array {
  const block = encodeHeaderBlock([[name, value]]);
  block[0] = 0x40;
  return block;
}
