import assert from "node:assert/strict";
import { echo, exchange, GET, open, post } from "../../tests/transport/http1_session.ts";
import { latin1, settle } from "../../tests/transport/memory_connection.ts";
import type { TestContextOptions } from "../../tests/transport/test_context.ts";

Deno.test("Http1Connection answers requests in order, however they are cut", async () => {
  const text = GET + post("hello") +
    "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n" +
    GET;
  const expected = "HTTP/1.1 200 OK\r\nx-target: /a\r\ncontent-length: 0\r\n\r\n" +
    "HTTP/1.1 200 OK\r\nx-target: /b\r\ncontent-length: 5\r\n\r\nhello" +
    "HTTP/1.1 200 OK\r\nx-target: /c\r\ncontent-length: 5\r\n\r\nabcde" +
    "HTTP/1.1 200 OK\r\nx-target: /a\r\ncontent-length: 0\r\n\r\n";
  for (let pieceBytes = 1; pieceBytes <= text.length; pieceBytes++) {
    const { connection, done } = open({ http: echo });
    connection.maxReadBytes = pieceBytes;
    connection.maxWriteBytes = pieceBytes;
    connection.feed(text);
    connection.feedEnd();
    await done;
    assert.equal(connection.takeText(), expected, `pieces of ${pieceBytes}`);
  }
});

Deno.test("Http1Connection writes a small response with one write", async () => {
  const { connection } = open({ http: echo });
  connection.feed(post("hello"));
  await settle();
  assert.equal(connection.writeCount, 1);
  connection.feedEnd();
});

Deno.test("Http1Connection reads large bodies whole", async () => {
  const body = "0123456789".repeat(30_000);
  for (const maxReadBytes of [7_001, 65_536, Infinity]) {
    const { connection, done } = open({ http: echo });
    connection.maxReadBytes = maxReadBytes;
    connection.feed(post(body));
    connection.feed(
      `POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n${
        body.length.toString(16)
      }\r\n${body}\r\n5\r\nabcde\r\n0\r\n\r\n`,
    );
    connection.feedEnd();
    await done;
    const text = connection.takeText();
    assert.ok(text.includes(`content-length: 300000\r\n\r\n${body}HTTP`));
    assert.ok(text.endsWith(`content-length: 300005\r\n\r\n${body}abcde`));
  }
});

Deno.test("Http1Connection answers malformed requests with JSON and closes", async () => {
  const cases: [string, number][] = [
    ["hello\r\n\r\n", 400],
    ["GET / HTTP/1.1\nHost: a\n\n", 400],
    ["\x16\x03\x01\0\xc8\x01\0\0\xc4\x03\x03\n", 400],
    [`GET / HTTP/1.1\r\nHost: a\r\nX: ${"a".repeat(70_000)}\r\n\r\n`, 431],
    [`GET /${"a".repeat(70_000)}`, 431],
    [`GET / HTTP/1.1\r\nHost: a\r\n${"X: a\r\n".repeat(300)}\r\n`, 431],
    ["POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400],
    ["POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", 413],
    ["POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", 413],
  ];
  for (const [text, status] of cases) {
    const answer = await exchange(text + GET, { http: echo });
    assert.match(answer, new RegExp(`^HTTP/1.1 ${status} `), JSON.stringify(text.slice(0, 40)));
    assert.match(answer, /\r\nconnection: close\r\n\r\n\{"error":"[^"]+"\}$/);
  }
});

Deno.test("Http1Connection bounds the number of chunks and names the bound", async () => {
  const head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  const fits = head + "1\r\nx\r\n".repeat(65_536) + "0\r\n\r\n";
  assert.match(await exchange(fits, { http: echo }), /content-length: 65536\r\n/);
  const tooMany = head + "1\r\nx\r\n".repeat(65_537) + "0\r\n\r\n";
  assert.ok((await exchange(tooMany, { http: echo })).endsWith(
    '{"error":"Chunked request body exceeds maximum of 65536 non-empty chunks. ' +
      'Send fewer or larger HTTP chunks."}',
  ));
});

Deno.test("Http1Connection refuses bodies over the limit by name", async () => {
  const limits = { maxBodyBytes: 10 };
  const sized = await exchange(post("01234567890"), { http: echo, limits });
  assert.match(
    sized,
    /^HTTP\/1.1 413 .*"Request body of 11 bytes exceeds the maximum of 10 bytes"/s,
  );
  const chunked =
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n5\r\n";
  assert.match(await exchange(chunked, { http: echo, limits }), /^HTTP\/1.1 413 /);
  assert.match(await exchange(post("0123456789"), { http: echo, limits }), /^HTTP\/1.1 200 /);
});

Deno.test("Http1Connection refuses a body for which the quota has no room", async () => {
  const answer = await exchange(post("x".repeat(500_000)), {
    http: echo,
    limits: { maxConnectionBufferBytes: 100_000 },
  });
  assert.match(answer, /^HTTP\/1.1 503 /);
});

Deno.test("Http1Connection lets admit() answer before the body is read", async () => {
  let handled = 0;
  const http = {
    admit: (head: { target: string }) => head.target === "/b" ? { status: 404 } : undefined,
    handle: () => {
      handled++;
      return { status: 200 };
    },
  };
  const kept = await exchange(post("hello") + GET, { http });
  assert.match(kept, /^HTTP\/1.1 404 .*HTTP\/1.1 200 OK/s);
  assert.equal(handled, 1);
  const chunked =
    "POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
  const closed = await exchange(chunked + GET, { http });
  assert.match(closed, /^HTTP\/1.1 404 [^]*connection: close\r\n\r\n$/);
});

Deno.test("Http1Connection asks for the body only when the client waits for that", async () => {
  const { connection, done } = open({ http: echo });
  connection.feed(
    "POST /b HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
  );
  await settle();
  assert.equal(connection.takeText(), "HTTP/1.1 100 Continue\r\n\r\n");
  connection.feed("hello");
  connection.feedEnd();
  await done;
  assert.match(connection.takeText(), /^HTTP\/1.1 200 .*hello$/s);
  const sent = await exchange(post("hello", "Expect: 100-continue\r\n"), { http: echo });
  assert.match(sent, /^HTTP\/1.1 200 /);
});

Deno.test("Http1Connection sends no body to HEAD, 204 and 304", async () => {
  const head = await exchange("HEAD /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", {
    http: echo,
  });
  assert.match(head, /content-length: 5\r\n\r\n$/);
  for (const status of [204, 304]) {
    const http = { handle: () => ({ status, body: [latin1("x")] }) };
    const answer = await exchange(GET, { http });
    assert.match(answer, /\r\n\r\n$/);
    assert.doesNotMatch(answer, /content-length/);
  }
});

Deno.test("Http1Connection speaks HTTP/1.0", async () => {
  const closes = await exchange("GET / HTTP/1.0\r\n\r\n" + GET, { http: echo });
  assert.match(closes, /connection: close\r\n\r\n$/);
  const keeps = await exchange("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + GET, {
    http: echo,
  });
  assert.match(keeps, /connection: keep-alive\r\n\r\nHTTP\/1.1 200/);
});

Deno.test("Http1Connection turns a failing handler into 500", async () => {
  const failures = [
    () => {
      throw new Error("secret");
    },
    () => Promise.reject(new Error("secret")),
    () => ({ status: 200, headers: [["x-a", "b\r\nx-c: d"]] as [string, string][] }),
    () => ({ status: 200, headers: [["x a", "b"]] as [string, string][] }),
  ];
  for (const handle of failures) {
    const context: TestContextOptions = { http: { handle } };
    const answer = await exchange(GET + GET, context);
    assert.equal(answer.match(/HTTP\/1.1 500/g)?.length, 2);
    assert.doesNotMatch(answer, /secret|x-c/);
  }
});

Deno.test("Http1Connection drops transport fields of the handler", async () => {
  const headers: [string, string][] = [["Content-Length", "99"], ["Transfer-Encoding", "x"], [
    "connection",
    "y",
  ]];
  const answer = await exchange(GET, { http: { handle: () => ({ status: 200, headers }) } });
  assert.equal(answer, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
});

Deno.test("Http1Connection sees repeated heads right", async () => {
  const answer = await exchange(post("one") + post("two") + post("three") + post("one"), {
    http: echo,
  });
  assert.deepEqual(answer.match(/\r\n\r\n[a-z]*/g), [
    "\r\n\r\none",
    "\r\n\r\ntwo",
    "\r\n\r\nthree",
    "\r\n\r\none",
  ]);
});
