import assert from "node:assert/strict";
import { echo, exchange, GET, open, post } from "../../tests/transport/http1_session.ts";
import { latin1, settle } from "../../tests/transport/memory_connection.ts";
import type { CancelSignal, HttpRequest, HttpResponse } from "./transport.ts";

async function* chunks(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield latin1(await Promise.resolve(text));
}

Deno.test("Http1Connection streams bodies in chunks, or to the end of an HTTP/1.0 connection", async () => {
  const http = { handle: () => ({ status: 200, body: chunks("one", "", "three") }) };
  const answer = await exchange(GET + GET, { http });
  const expected =
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n5\r\nthree\r\n0\r\n\r\n";
  assert.equal(answer, expected + expected);
  const old = await exchange("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", { http });
  assert.equal(old, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nonethree");
});

Deno.test("Http1Connection cuts off a streamed body that fails", async () => {
  async function* failing() {
    yield latin1("one");
    await Promise.resolve();
    throw new Error("model failed");
  }
  const answer = await exchange(GET + GET, {
    http: { handle: () => ({ status: 200, body: failing() }) },
  });
  assert.ok(answer.endsWith("\r\n\r\n3\r\none\r\n"));
});

Deno.test("Http1Connection pulls a streamed body only as fast as it is read", async () => {
  let pulled = 0;
  async function* endless() {
    for (;;) {
      pulled++;
      yield await Promise.resolve(latin1("x".repeat(1_000)));
    }
  }
  let returned = false;
  const body = {
    [Symbol.asyncIterator]: () => {
      const inner = endless();
      return { next: () => inner.next(), return: () => (returned = true, inner.return(undefined)) };
    },
  };
  const { connection, http, done } = open({ http: { handle: () => ({ status: 200, body }) } });
  connection.isBlocked = true;
  connection.feed(GET);
  await settle();
  assert.ok(pulled <= 1, `${pulled} pulled`);
  http.close();
  await done;
  assert.equal(returned, true);
});

Deno.test("Http1Connection aborts the request whose streamed body cannot be written to its end", async () => {
  let signal: CancelSignal | undefined;
  const http = {
    handle: (request: HttpRequest) => {
      signal = request.signal;
      return { status: 200, body: chunks("one", "two") };
    },
  };
  const { connection, done } = open({ http });
  connection.write = () => Promise.reject(new Error("broken pipe"));
  connection.feed(GET);
  await done;
  assert.equal(signal!.aborted, true);
});

Deno.test("Http1Connection calls onSent exactly once and gives the body back after that write", async () => {
  let sent = 0;
  const http = {
    handle: (request: HttpRequest) => ({ status: 200, body: [request.body], onSent: () => sent++ }),
  };
  const { connection, context, done } = open({ http });
  connection.isBlocked = true;
  connection.feed(post("x".repeat(100_000)));
  await settle();
  assert.equal(sent, 0);
  assert.equal(context.pool.outstandingCount, 1);
  connection.unblock();
  await settle();
  assert.equal(sent, 1);
  assert.equal(context.pool.outstandingCount, 0);
  assert.ok(connection.takeText().endsWith("x".repeat(100_000)));
  connection.isBlocked = true;
  connection.feed(post("y"));
  await settle();
  connection.close();
  await done;
  assert.equal(sent, 2);
});

Deno.test("Http1Connection aborts the signal when the connection breaks", async () => {
  let signal: CancelSignal | undefined;
  const http = {
    handle: (request: HttpRequest) => {
      signal = request.signal;
      return new Promise<HttpResponse>((resolve) =>
        request.signal.addEventListener("abort", () => resolve({ status: 499 }))
      );
    },
  };
  const { connection, done } = open({ http });
  connection.feed(GET);
  await settle();
  assert.equal(signal!.aborted, false);
  connection.feedError();
  await done;
  assert.equal(signal!.aborted, true);
});

Deno.test("Http1Connection answers a half-closed client, also when the answer takes time", async () => {
  let answer: (response: HttpResponse) => void = () => {};
  const http = { handle: () => new Promise<HttpResponse>((resolve) => answer = resolve) };
  const { connection, done } = open({ http });
  connection.feed(GET);
  connection.feedEnd();
  await settle();
  answer({ status: 200, body: [latin1("late")] });
  await done;
  assert.match(connection.takeText(), /late$/);
});

Deno.test("Http1Connection.tick() ends what takes too long", async () => {
  const cases: [string, string, number][] = [
    ["no byte at all", "", 20_001],
    ["half a head", "GET / HT", 20_001],
    ["half a body", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", 60_010],
    ["idle", GET, 3_600_001],
  ];
  for (const [name, text, elapsedMs] of cases) {
    const { connection, context, http, done } = open({ http: echo });
    connection.feed(text);
    await settle();
    connection.takeOutput();
    context.now += elapsedMs - 10;
    http.tick();
    await settle();
    assert.equal(connection.closed, false, name);
    context.now += 10;
    http.tick();
    await done;
    assert.equal(connection.closed, true, name);
    const isRequest = name.startsWith("half");
    assert.equal(/^HTTP\/1.1 408 /.test(connection.takeText()), isRequest, name);
    assert.equal(context.pool.outstandingCount, 0);
  }
});

Deno.test("Http1Connection.tick() lets a body go on that is fast enough", async () => {
  const { connection, context, http } = open({ http: echo });
  connection.feed("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
  for (let second = 0; second < 90; second++) {
    connection.feed(new Uint8Array(2_048));
    await settle();
    context.now += 1_000;
    http.tick();
  }
  assert.equal(connection.closed, false);
  context.now += 200_000;
  http.tick();
  await settle();
  assert.equal(connection.closed, true);
});

Deno.test("Http1Connection.tick() cuts off a peer that does not read", async () => {
  const { connection, context, http, done } = open({ http: echo });
  connection.isBlocked = true;
  connection.feed(post("x".repeat(100_000)));
  await settle();
  context.now += 60_001;
  http.tick();
  await done;
  assert.equal(context.pool.outstandingCount, 0);
});

Deno.test("Http1Connection.drain() closes an idle connection and finishes a busy one", async () => {
  const idle = open({ http: echo });
  idle.connection.feed(GET);
  await settle();
  idle.http.drain();
  await idle.done;
  let answer: (response: HttpResponse) => void = () => {};
  const http = { handle: () => new Promise<HttpResponse>((resolve) => answer = resolve) };
  const busy = open({ http });
  busy.connection.feed(GET);
  await settle();
  busy.http.drain();
  answer({ status: 200 });
  await busy.done;
  assert.match(busy.connection.takeText(), /connection: close/);
});
