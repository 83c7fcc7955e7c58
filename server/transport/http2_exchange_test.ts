import assert from "node:assert/strict";
import { Client, content, ofType } from "../../tests/transport/http2_client.ts";
import {
  dataFrame,
  frame,
  headersFrame,
  type PeerFrame,
  POST_FIELDS,
} from "../../tests/transport/http2_peer.ts";
import { latin1 } from "../../tests/transport/memory_connection.ts";
import { FrameType } from "./http2_frames.ts";
import type { CancelSignal, HttpRequest } from "./transport.ts";

const WHOLE = 5;
const END_STREAM = 1;

Deno.test("Http2Connection serves HTTP requests with the HTTP handler", async () => {
  const seen: HttpRequest[] = [];
  const http = {
    handle: (request: HttpRequest) => {
      seen.push(request);
      return {
        status: 200,
        headers: [["X-Upper", "1"], ["connection", "x"]] as [string, string][],
        body: [request.body],
      };
    },
  };
  const client = new Client({ http });
  const frames = await client.send(
    headersFrame(1, POST_FIELDS),
    dataFrame(1, latin1("hel")),
    dataFrame(1, latin1("lo"), END_STREAM),
  );
  assert.equal(seen[0]!.target, "/echo");
  assert.equal(seen[0]!.headers.get("host"), "localhost");
  assert.equal(seen[0]!.headers.get(":path"), undefined);
  assert.deepEqual(ofType(frames, FrameType.HEADERS)[0]!.fields, [
    [":status", "200"],
    ["x-upper", "1"],
    ["content-length", "5"],
  ]);
  assert.deepEqual(content(frames), latin1("hello"));
  assert.equal(ofType(frames, FrameType.DATA).at(-1)!.flags, END_STREAM);
  await client.end();
});

Deno.test("Http2Connection streams HTTP responses and sends trailers", async () => {
  async function* body() {
    yield latin1("one");
    yield await Promise.resolve(latin1("two"));
  }
  let sent = 0;
  const http = {
    handle: () => ({
      status: 200,
      body: body(),
      trailers: [["x-end", "1"]] as [string, string][],
      onSent: () => sent++,
    }),
  };
  const client = new Client({ http });
  const frames = await client.send(headersFrame(1, POST_FIELDS, WHOLE));
  assert.deepEqual(content(frames), latin1("onetwo"));
  assert.deepEqual(frames.at(-1)!.fields, [["x-end", "1"]]);
  assert.equal(sent, 1);
  await client.end();
});

Deno.test("Http2Connection refuses HTTP bodies over the limit, and lets admit() answer early", async () => {
  const http = {
    admit: (head: { target: string }) => head.target === "/echo" ? undefined : { status: 404 },
    handle: () => ({ status: 200 }),
  };
  const status = (frames: PeerFrame[]) => ofType(frames, FrameType.HEADERS)[0]?.fields?.[0]?.[1];
  const client = new Client({ http, limits: { maxBodyBytes: 10 } });
  const long = [...POST_FIELDS, ["content-length", "11"]] as [string, string][];
  assert.equal(status(await client.send(headersFrame(1, long))), "413");
  assert.equal(
    status(await client.send(headersFrame(3, POST_FIELDS), dataFrame(3, new Uint8Array(11)))),
    "413",
  );
  const other = POST_FIELDS.map(([name, value]) =>
    [name, name === ":path" ? "/x" : value] as [string, string]
  );
  assert.equal(status(await client.send(headersFrame(5, other))), "404");
  assert.equal(
    status(await client.send(headersFrame(7, POST_FIELDS), dataFrame(7, new Uint8Array(10), 1))),
    "200",
  );
  await client.end();
});

Deno.test("Http2Connection aborts an HTTP request that is reset", async () => {
  let signal: CancelSignal | undefined;
  const http = {
    handle: (request: HttpRequest) => {
      signal = request.signal;
      return new Promise<{ status: number }>((resolve) =>
        signal!.addEventListener("abort", () => resolve({ status: 499 }))
      );
    },
  };
  const client = new Client({ http });
  await client.send(headersFrame(1, POST_FIELDS, WHOLE));
  assert.equal(signal!.aborted, false);
  await client.send(frame(FrameType.RST_STREAM, { streamId: 1, payload: new Uint8Array(4) }));
  assert.equal(signal!.aborted, true);
  await client.end();
});
