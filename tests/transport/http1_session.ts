import assert from "node:assert/strict";
import { Http1Connection } from "../../server/transport/http1.ts";
import type { HttpRequest, HttpResponse } from "../../server/transport/transport.ts";
import { latin1, MemoryConnection } from "./memory_connection.ts";
import { createTestContext, type TestContext, type TestContextOptions } from "./test_context.ts";

/** An HTTP/1.1 connection over memory. */
export interface Session {
  readonly connection: MemoryConnection;
  readonly context: TestContext;
  readonly http: Http1Connection;
  readonly done: Promise<void>;
}

/** Starts a connection that waits for input. */
export function open(options: TestContextOptions = {}, first = ""): Session {
  const connection = new MemoryConnection();
  const context = createTestContext(options);
  const http = new Http1Connection(connection, context);
  return { connection, context, http, done: http.run(latin1(first)) };
}

/** Feeds everything, ends the input, and returns all that was written. */
export async function exchange(text: string, options: TestContextOptions = {}): Promise<string> {
  const { connection, context, done } = open(options);
  connection.feed(text);
  connection.feedEnd();
  await done;
  assert.equal(context.pool.outstandingCount, 0);
  assert.equal(context.pool.chargedBytes, 0);
  assert.equal(connection.closed, true);
  return connection.takeText();
}

/** Answers with the request's target and body. */
export const echo = {
  handle: (request: HttpRequest): HttpResponse => ({
    status: 200,
    headers: [["x-target", request.target]],
    body: [request.body],
  }),
};

export const GET = "GET /a HTTP/1.1\r\nHost: h\r\n\r\n";

/** A request with a body. */
export function post(body: string, fields = ""): string {
  return `POST /b HTTP/1.1\r\nHost: h\r\n${fields}Content-Length: ${body.length}\r\n\r\n${body}`;
}
