import assert from "node:assert/strict";
import { BufferPool } from "../../server/transport/buffer_pool.ts";
import { openDenoServeListener } from "../../server/transport/deno_serve_engine.ts";
import type { HttpHandler, HttpRequest } from "../../server/transport/transport.ts";
import { latin1 } from "./memory_connection.ts";

async function* parts() {
  yield latin1("one");
  yield await Promise.resolve(latin1("two"));
}

Deno.test("openDenoServeListener() serves the same handler", async () => {
  let sentCount = 0;
  const onSent = () => void sentCount++;
  const handler: HttpHandler = {
    admit: (head) => head.target === "/early" ? { status: 404, onSent } : undefined,
    handle: (request: HttpRequest) => {
      const headers: [string, string][] = [["x-target", request.target], [
        "x-host",
        request.headers.get("host") ?? "",
      ]];
      if (request.target === "/stream") return { status: 200, body: parts(), onSent };
      if (request.target === "/fail") throw new Error("secret");
      return { status: 200, headers, body: [request.body, latin1("!")], onSent };
    },
  };
  const pool = new BufferPool({ poison: true });
  const faults: unknown[] = [];
  const listener = await openDenoServeListener({
    address: "127.0.0.1",
    port: 0,
    pool,
    limits: { maxBodyBytes: 1_000_000 },
    onError: (error) => faults.push(error),
  }, handler);
  const url = `http://127.0.0.1:${listener.port}`;
  const echo = await fetch(`${url}/a%20b?c=d`, { method: "POST", body: "hello" });
  assert.equal(await echo.text(), "hello!");
  assert.equal(echo.headers.get("x-target"), "/a%20b?c=d");
  assert.equal(echo.headers.get("x-host"), `127.0.0.1:${listener.port}`);
  assert.equal(echo.headers.get("content-length"), "6");
  const big = "x".repeat(900_000);
  assert.equal(await (await fetch(url, { method: "POST", body: big })).text(), `${big}!`);
  assert.equal(await (await fetch(`${url}/stream`)).text(), "onetwo");
  const early = await fetch(`${url}/early`);
  assert.equal(early.status, 404);
  await early.body?.cancel();
  const refused = await fetch(url, { method: "POST", body: "x".repeat(1_000_001) });
  assert.equal(refused.status, 413);
  assert.match(await refused.text(), /exceeds the maximum of 1000000 bytes/);
  const failed = await fetch(`${url}/fail`);
  assert.equal(failed.status, 500);
  assert.doesNotMatch(await failed.text(), /secret/);
  assert.equal(faults.length, 1);
  assert.equal(sentCount, 4);
  assert.equal(await listener.drain(5_000), true);
  assert.equal(pool.outstandingCount, 0);
  assert.equal(pool.chargedBytes, 0);
});

Deno.test("openDenoServeListener() refuses mutual TLS", async () => {
  const tls = { cert: "", key: "", clientCa: "" };
  const handler = { handle: () => ({ status: 200 }) };
  await assert.rejects(
    openDenoServeListener({ address: "127.0.0.1", port: 0, tls }, handler),
    /client certificates/,
  );
});

Deno.test("openDenoServeListener() aborts the signal only when the client is gone", async () => {
  const gone = Promise.withResolvers<void>();
  const started = Promise.withResolvers<void>();
  let abortedEarly = 0;
  const handler: HttpHandler = {
    handle: async ({ target, signal }) => {
      if (target !== "/wait") {
        await Promise.resolve();
        if (signal.aborted) abortedEarly++;
        return { status: 200 };
      }
      signal.addEventListener("abort", () => gone.resolve());
      started.resolve();
      await gone.promise;
      return { status: 499 };
    },
  };
  const listener = await openDenoServeListener({ address: "127.0.0.1", port: 0 }, handler);
  const url = `http://127.0.0.1:${listener.port}`;
  for (let index = 0; index < 10; index++) await (await fetch(`${url}/quick`)).body?.cancel();
  const abort = new AbortController();
  const waiting = fetch(`${url}/wait`, { signal: abort.signal }).catch(() => {});
  await started.promise;
  abort.abort();
  await gone.promise;
  await waiting;
  assert.equal(abortedEarly, 0);
  await listener.drain(1_000);
});

Deno.test("openDenoServeListener() reports no fault for bodies that end early", async () => {
  const faults: unknown[] = [];
  const pool = new BufferPool({ poison: true });
  const listener = await openDenoServeListener({
    address: "127.0.0.1",
    port: 0,
    pool,
    onError: (error) => faults.push(error),
  }, { handle: () => ({ status: 200 }) });
  for (
    const framing of ["content-length: 100\r\n\r\n", "transfer-encoding: chunked\r\n\r\nzz\r\n"]
  ) {
    using peer = await Deno.connect({ hostname: "127.0.0.1", port: listener.port });
    await peer.write(latin1(`POST / HTTP/1.1\r\nhost: a\r\n${framing}abc`));
    await peer.closeWrite();
    const answer = new Uint8Array(1000);
    while (await peer.read(answer).catch(() => null) !== null);
  }
  assert.equal(await listener.drain(5_000), true);
  assert.deepEqual(faults, []);
  assert.equal(pool.outstandingCount, 0);
});
