import assert from "node:assert/strict";
import { createFramePort, sendFree } from "./stub_link.ts";
import { StubMemory } from "./stub_memory.ts";
import { FrameReader, FREE_KIND } from "./frame.ts";

Deno.test("slots to be given back are not lost with a frame that cannot be made", async () => {
  const reader = new FrameReader();
  const sink = {
    write: (bytes: Uint8Array) => {
      const room = reader.room();
      room.set(bytes);
      reader.received(bytes.length);
      return Promise.resolve(bytes.length);
    },
  };
  const memory = new StubMemory({ initialByteSize: 4096, growthByteSize: 4096, maxByteSize: 8192 });
  const port = createFramePort(sink, memory, (reason) => assert.fail(String(reason)));
  memory.giveBack([[3, 64]]);
  assert.throws(() => port.send(7, 1, { number: 1n }), TypeError);
  sendFree(port);
  await Promise.resolve();
  const frame = reader.next()!;
  assert.deepEqual([frame.kind, frame.json], [FREE_KIND, { f: [[3, 64]] }]);
  memory.close();
});
