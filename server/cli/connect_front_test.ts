import assert from "node:assert/strict";
import type { RequestHead } from "../transport/transport.ts";
import { createConnectFront, NOT_FOUND } from "./connect_front.ts";

function head(target: string): RequestHead {
  return {
    method: "POST",
    target,
    headers: { get: () => undefined, entries: () => [] },
    httpVersion: "1.1",
  };
}

Deno.test("createConnectFront() asks each handler for its own heads", () => {
  const connect = {
    matches: ({ target }: RequestHead) => target.startsWith("/inference."),
    admit: ({ target }: RequestHead) => target.endsWith("Big") ? { status: 413 } : undefined,
    handle: () => Promise.resolve({ status: 200 }),
  };
  const front = createConnectFront(connect, NOT_FOUND);
  assert.equal(front.admit?.(head("/inference.S/Big"))?.status, 413);
  assert.equal(front.admit?.(head("/inference.S/Small")), undefined);
  assert.equal(front.admit?.(head("/v2"))?.status, 404);
});
