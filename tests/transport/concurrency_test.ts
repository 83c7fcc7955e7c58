import assert from "node:assert/strict";
import { FrameType } from "../../server/transport/http2_frames.ts";
import {
  concat,
  dataFrame,
  GRPC_FIELDS,
  headersFrame,
  message,
  windowUpdate,
} from "./http2_peer.ts";
import { Http2Peer, isEnd, openTestListener } from "./socket_peer.ts";

const STREAM_COUNT = 64;
const CONNECTION_COUNT = 4;

/** Bytes that tell stream, message and place apart. */
function content(stream: number, index: number): Uint8Array {
  const byteSize = [0, 1, 100, 5_000, 40_000, 200_000][(stream + index) % 6]!;
  return Uint8Array.from(
    { length: byteSize },
    (_, at) => stream * 131 + index * 17 + at + (at >> 8) * 3,
  );
}

async function runStreams(peer: Http2Peer, base: number): Promise<void> {
  const ids = Array.from({ length: STREAM_COUNT / CONNECTION_COUNT }, (_, index) => 2 * index + 1);
  const expected = new Map<number, Uint8Array>();
  const received = new Map<number, Uint8Array[]>(ids.map((id) => [id, []]));
  await peer.send(
    windowUpdate(0, 1_000_000_000),
    ...ids.map((id) => headersFrame(id, GRPC_FIELDS)),
  );
  const sending = (async () => {
    const sent = new Map<number, Uint8Array[]>(ids.map((id) => [id, []]));
    for (let index = 0; index < 6; index++) {
      for (const id of ids) {
        const bytes = message(content(base + id, index));
        sent.get(id)!.push(bytes);
        for (let at = 0; at < bytes.length; at += 60_000) {
          await peer.send(dataFrame(id, bytes.subarray(at, at + 60_000)));
        }
      }
    }
    for (const id of ids) expected.set(id, concat(...sent.get(id)!));
    await peer.send(...ids.map((id) => dataFrame(id, new Uint8Array(0), 1)));
  })();
  const open = new Set(ids);
  while (open.size > 0) {
    const frames = await peer.read();
    assert.ok(frames !== undefined, "connection ended");
    for (const found of frames) {
      if (found.type === FrameType.DATA) received.get(found.streamId)!.push(found.payload);
      assert.notEqual(found.type, FrameType.RST_STREAM);
      assert.notEqual(found.type, FrameType.GOAWAY);
      if (found.streamId > 0 && isEnd(found.streamId)(found)) open.delete(found.streamId);
    }
  }
  await sending;
  for (const id of ids) {
    assert.deepEqual(concat(...received.get(id)!), expected.get(id), `stream ${id}`);
  }
}

Deno.test("64 parallel streams echo every byte with poisoned buffers", async () => {
  await using test = await openTestListener();
  const peers = await Promise.all(
    Array.from({ length: CONNECTION_COUNT }, async () =>
      await Http2Peer.open(
        await Deno.connect({ hostname: "127.0.0.1", port: test.listener.port }),
        [4, 100_000_000],
        [5, 1_000_000],
      )),
  );
  await Promise.all(peers.map((peer, index) => runStreams(peer, 1_000 * index)));
  for (const peer of peers) peer[Symbol.dispose]();
  assert.deepEqual(test.faults, []);
});

Deno.test("parallel HTTP/1.1 requests echo every byte with poisoned buffers", async () => {
  await using test = await openTestListener();
  const url = `http://127.0.0.1:${test.listener.port}/`;
  await Promise.all(Array.from({ length: 32 }, async (_, client) => {
    for (let index = 0; index < 6; index++) {
      const body = content(client, index);
      const response = await fetch(url, { method: "POST", body: body as Uint8Array<ArrayBuffer> });
      assert.deepEqual(await response.bytes(), body);
    }
  }));
  assert.deepEqual(test.faults, []);
});
