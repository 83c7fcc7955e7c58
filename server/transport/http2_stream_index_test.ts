import assert from "node:assert/strict";
import type { Http2Stream } from "./http2_stream.ts";
import { Http2StreamIndex } from "./http2_stream_index.ts";

function stream(id: number): Http2Stream {
  return { id } as unknown as Http2Stream;
}

const ids = (index: Http2StreamIndex) => index.values().map(({ id }) => id).sort((a, b) => a - b);

Deno.test("Http2StreamIndex finds streams by their ids until they are deleted", () => {
  const index = new Http2StreamIndex();
  const [first, second] = [stream(1), stream(3)];
  index.add(first);
  index.add(second);
  assert.equal(index.get(1), first);
  assert.equal(index.get(3), second);
  assert.equal(index.get(5), undefined);
  assert.ok(index.delete(1));
  assert.ok(!index.delete(1));
  assert.deepEqual([index.size, ids(index)], [1, [3]]);
});

Deno.test("Http2StreamIndex keeps streams apart whose ids share a place", () => {
  const index = new Http2StreamIndex();
  const sharing = [1, 129, 257].map(stream);
  for (const each of sharing) index.add(each);
  for (const each of sharing) assert.equal(index.get(each.id), each);
  assert.equal(index.get(385), undefined);
  assert.equal(index.size, 3);
  assert.ok(index.delete(1));
  assert.equal(index.get(129), sharing[1]);
  assert.ok(index.delete(129) && index.delete(257));
  assert.equal(index.size, 0);
});

Deno.test("Http2StreamIndex holds as many streams as are open, long ones beside short ones", () => {
  const index = new Http2StreamIndex();
  const expected: number[] = [];
  for (let id = 1; id < 40_000; id += 2) {
    index.add(stream(id));
    if (id % 3 === 0) index.delete(id);
    else expected.push(id);
  }
  assert.deepEqual(ids(index), expected);
  assert.ok(expected.every((id) => index.get(id)?.id === id));
  index.clear();
  assert.deepEqual([index.size, index.values()], [0, []]);
});

Deno.test("Http2StreamIndex takes the largest ids", () => {
  const index = new Http2StreamIndex();
  index.add(stream(2 ** 31 - 1));
  assert.equal(index.get(2 ** 31 - 1)?.id, 2 ** 31 - 1);
  assert.ok(index.delete(2 ** 31 - 1));
});
