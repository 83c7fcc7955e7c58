import assert from "node:assert/strict";
import { latin1 } from "../../tests/transport/memory_connection.ts";
import { HttpError } from "./http_error.ts";
import { findHeadEnd, parseHead } from "./http1_parser.ts";

function parse(text: string) {
  return parseHead(latin1(text.replaceAll("\n", "\r\n")), 100);
}

function post(...lines: string[]): string {
  return ["POST /x HTTP/1.1", "Host: a", ...lines, "", ""].join("\n");
}

Deno.test("parseHead() reads a request", () => {
  const head = parse(
    "POST /v2/models/m%20n/infer?a=b HTTP/1.1\nHost: h\nX-A: 1\nx-a:2 \nContent-Length: 12\n\n",
  );
  assert.equal(head.method, "POST");
  assert.equal(head.target, "/v2/models/m%20n/infer?a=b");
  assert.equal(head.httpVersion, "1.1");
  assert.equal(head.contentLength, 12);
  assert.equal(head.keepAlive, true);
  assert.equal(head.headers.get("x-a"), "1");
  assert.equal(head.headers.get("x-b"), undefined);
  assert.deepEqual([...head.headers.entries()], [
    ["Host", "h"],
    ["X-A", "1"],
    ["x-a", "2 "],
    ["Content-Length", "12"],
  ]);
});

Deno.test("parseHead() turns every form of target into path and query", () => {
  const cases: [string, string][] = [
    ["GET /", "/"],
    ["GET //a//b", "//a//b"],
    ["GET http://example.org/v2?x", "/v2?x"],
    ["GET HTTPS://example.org:80", "/"],
    ["GET http://example.org?x", "/?x"],
    ["OPTIONS *", "*"],
    ["CONNECT a:80", "a:80"],
  ];
  for (const [line, target] of cases) {
    assert.equal(parse(`${line} HTTP/1.1\nHost: a\n\n`).target, target, line);
  }
});

Deno.test("parseHead() decides whether the connection is kept", () => {
  const cases: [string, string, boolean][] = [
    ["1.1", "X: y", true],
    ["1.1", "Connection: close", false],
    ["1.1", "Connection: TE, Close", false],
    ["1.0", "X: y", false],
    ["1.0", "Connection: Keep-Alive", true],
    ["1.0", "Connection: keep-alive, close", false],
  ];
  for (const [version, field, expected] of cases) {
    const head = parse(`GET / HTTP/${version}\nHost: a\n${field}\n\n`);
    assert.equal(head.keepAlive, expected, `${version} ${field}`);
  }
});

Deno.test("parseHead() refuses whatever two parsers could read differently", () => {
  const cases: [string, string, number][] = [
    ["both lengths", post("Content-Length: 5", "Transfer-Encoding: chunked"), 400],
    ["both lengths, other order", post("Transfer-Encoding: chunked", "Content-Length: 0"), 400],
    ["two different lengths", post("Content-Length: 5", "Content-Length: 6"), 400],
    ["one length twice", post("Content-Length: 5", "Content-Length: 5"), 400],
    ["list of lengths", post("Content-Length: 5, 5"), 400],
    ["length with plus", post("Content-Length: +5"), 400],
    ["negative length", post("Content-Length: -5"), 400],
    ["hexadecimal length", post("Content-Length: 0x5"), 400],
    ["fractional length", post("Content-Length: 5.0"), 400],
    ["empty length", post("Content-Length:"), 400],
    ["length in two parts", post("Content-Length: 1 2"), 400],
    ["length beyond numbers", post("Content-Length: 99999999999999999999"), 400],
    ["length with no-break space", post("Content-Length: \xa05"), 400],
    ["coding with vertical tab", post("Transfer-Encoding:\x0bchunked"), 400],
    ["coding with form feed", post("Transfer-Encoding:\x0cchunked"), 400],
    ["coding with no-break space", post("Transfer-Encoding: \xa0chunked"), 501],
    ["coding with NUL", post("Transfer-Encoding: chunked\0"), 400],
    ["coding in quotes", post('Transfer-Encoding: "chunked"'), 501],
    ["coding twice", post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400],
    [
      "coding twice, second identity",
      post("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
      400,
    ],
    ["identity", post("Transfer-Encoding: identity"), 501],
    ["gzip and chunked", post("Transfer-Encoding: gzip, chunked"), 501],
    ["chunked twice in a list", post("Transfer-Encoding: chunked, chunked"), 501],
    ["xchunked", post("Transfer-Encoding: xchunked"), 501],
    ["chunked in HTTP/1.0", "POST / HTTP/1.0\nTransfer-Encoding: chunked\n\n", 400],
    ["space before colon", post("Content-Length : 5"), 400],
    ["tab before colon", post("Transfer-Encoding\t: chunked"), 400],
    ["folded line", post("X: a", " b"), 400],
    ["folded line with tab", post("X: a", "\tTransfer-Encoding: chunked"), 400],
    ["white space before the first field", "GET / HTTP/1.1\n Host: a\n\n", 400],
    ["no colon", post("Host a"), 400],
    ["empty name", post(": a"), 400],
    ["name with parenthesis", post("a(b): c"), 400],
    ["name with high byte", post("\xe9: c"), 400],
    ["NUL in value", post("X: a\0b"), 400],
    ["bare CR in value", post("X: a\rContent-Length: 5"), 400],
    ["DEL in value", post("X: \x7f"), 400],
    ["two hosts", post("Host: b"), 400],
    ["no host", "GET / HTTP/1.1\n\n", 400],
    ["unknown expectation", post("Expect: 200-ok"), 417],
    ["two spaces in request line", "GET  / HTTP/1.1\nHost: a\n\n", 400],
    ["tab in request line", "GET\t/ HTTP/1.1\nHost: a\n\n", 400],
    ["space in target", "GET /a b HTTP/1.1\nHost: a\n\n", 400],
    ["control character in target", "GET /\x01 HTTP/1.1\nHost: a\n\n", 400],
    ["high byte in target", "GET /\xe9 HTTP/1.1\nHost: a\n\n", 400],
    ["target without slash", "GET v2 HTTP/1.1\nHost: a\n\n", 400],
    ["no version", "GET /\nHost: a\n\n", 400],
    ["lower-case version", "GET / http/1.1\nHost: a\n\n", 400],
    ["version with more digits", "GET / HTTP/1.10\nHost: a\n\n", 400],
    ["version 2.0", "GET / HTTP/2.0\nHost: a\n\n", 505],
    ["version 1.5", "GET / HTTP/1.5\nHost: a\n\n", 505],
    ["trailing space", "GET / HTTP/1.1 \nHost: a\n\n", 400],
    ["method with brace", "GE{T / HTTP/1.1\nHost: a\n\n", 400],
  ];
  for (const [name, text, status] of cases) {
    assert.throws(() => parse(text), (error: unknown) => {
      assert.ok(error instanceof HttpError, `${name}: ${error}`);
      assert.equal(error.status, status, name);
      return true;
    }, name);
  }
});

Deno.test("parseHead() accepts odd but clear fields", () => {
  const head = parse(
    post(
      "X-Empty:",
      "X-Tab:\ta\tb\t",
      "!#$%&'*+-.^_`|~1: v",
      "X-High: caf\xe9",
      "Transfer-Encoding: CHUNKED",
    ),
  );
  assert.equal(head.headers.get("x-empty"), "");
  assert.equal(head.headers.get("x-tab"), "a\tb");
  assert.equal(head.headers.get("!#$%&'*+-.^_`|~1"), "v");
  assert.equal(head.headers.get("x-high"), "caf\xe9");
  assert.equal(head.contentLength, -1);
});

Deno.test("parseHead() limits the number of fields", () => {
  const lines = Array.from({ length: 99 }, (_, index) => `x-${index}: a`);
  assert.equal([...parse(post(...lines)).headers.entries()].length, 100);
  assert.throws(() => parse(post(...lines, "one: more")), { status: 431 });
});

Deno.test("findHeadEnd() finds the empty line wherever the input is split", () => {
  const bytes = latin1("GET / HTTP/1.1\r\nHost: a\r\n\r\nrest");
  const end = bytes.length - 4;
  for (let split = 1; split < end; split++) {
    assert.equal(findHeadEnd(bytes.subarray(0, split), { start: 0, end: split, from: 0 }), -1);
    assert.equal(
      findHeadEnd(bytes, { start: 0, end: bytes.length, from: Math.max(0, split - 1) }),
      end,
    );
  }
});

Deno.test("findHeadEnd() refuses a line that ends with LF alone", () => {
  for (const text of ["GET / HTTP/1.1\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\n\n", "\n"]) {
    const bytes = latin1(text);
    assert.throws(() => findHeadEnd(bytes, { start: 0, end: bytes.length, from: 0 }), {
      status: 400,
    });
  }
});
