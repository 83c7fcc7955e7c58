import assert from "node:assert/strict";
import {
  concat,
  dataFrame,
  frame,
  PREFACE,
  settingsFrame,
} from "../../tests/transport/http2_peer.ts";
import { MemoryConnection } from "../../tests/transport/memory_connection.ts";
import { type Frame, Http2Error } from "./http2_frames.ts";
import { FrameReader, type FrameSink } from "./http2_reader.ts";

/** Writes down what a reader hands out. */
class Recorder implements FrameSink {
  readonly events: string[] = [];
  content: number[] = [];
  room: Uint8Array | undefined;

  frame({ type, flags, streamId, bytes, start, end }: Frame): void {
    this.events.push(`frame ${type} ${flags} ${streamId} [${bytes.subarray(start, end)}]`);
  }

  dataStart(frame: Frame, contentBytes: number): void {
    this.events.push(`data ${frame.streamId} ${frame.end - frame.start} ${contentBytes}`);
  }

  data(bytes: Uint8Array, start: number, end: number): void {
    this.content.push(...bytes.subarray(start, end));
  }

  dataEnd(): void {
    this.events.push(`end [${this.content}]`);
    this.content = [];
  }

  directRoom(wanted: number): Uint8Array | undefined {
    return this.room?.subarray(0, wanted);
  }

  directFilled(count: number): void {
    this.events.push(`direct ${count}`);
  }

  backPressure(): undefined {
    return undefined;
  }

  received(): void {}
}

const LIMITS = { maxFrameBytes: 100_000, maxHeldFrameBytes: 16_384 };

async function read(
  bytes: Uint8Array,
  pieceBytes = Infinity,
  sink = new Recorder(),
): Promise<Recorder> {
  const connection = new MemoryConnection();
  connection.maxReadBytes = pieceBytes;
  connection.feed(bytes);
  connection.feedEnd();
  await new FrameReader(connection, { sink, limits: LIMITS }).run(new Uint8Array(0));
  return sink;
}

Deno.test("FrameReader cuts frames wherever the input is split", async () => {
  const bytes = concat(
    PREFACE,
    settingsFrame([3, 100]),
    dataFrame(1, Uint8Array.of(1, 2, 3)),
    dataFrame(1, Uint8Array.of(2, 9, 8, 0, 0), 8),
    dataFrame(1, Uint8Array.of(0, 7), 9),
    dataFrame(3, Uint8Array.of(3, 0, 0, 0), 8),
    dataFrame(3, new Uint8Array(0), 1),
    frame(77, { streamId: 5, payload: new Uint8Array(500) }),
    frame(6, { payload: new Uint8Array(8) }),
  );
  for (let pieceBytes = 1; pieceBytes <= 60; pieceBytes++) {
    assert.deepEqual((await read(bytes, pieceBytes)).events, [
      "frame 4 0 0 [0,3,0,0,0,100]",
      "data 1 3 3",
      "end [1,2,3]",
      "data 1 5 2",
      "end [9,8]",
      "data 1 2 1",
      "end [7]",
      "data 3 4 0",
      "end []",
      "data 3 0 0",
      "end []",
      "frame 77 0 5 []",
      "frame 6 0 0 [0,0,0,0,0,0,0,0]",
    ]);
  }
});

Deno.test("FrameReader refuses a wrong preface, long frames and long padding", async () => {
  const longHead = Uint8Array.of(1, 0x86, 0xa1, 0, 0, 0, 0, 0, 1);
  const cases: [string, Uint8Array, number][] = [
    ["preface", concat(PREFACE.subarray(0, 20), Uint8Array.of(0)), 1],
    ["long frame", concat(PREFACE, longHead), 6],
    [
      "long SETTINGS",
      concat(PREFACE, frame(4, { payload: new Uint8Array(20_000) }).subarray(0, 9)),
      11,
    ],
    ["padding", concat(PREFACE, dataFrame(1, Uint8Array.of(3, 0, 0), 8)), 1],
  ];
  for (const [name, bytes, code] of cases) {
    await assert.rejects(read(bytes), (error: unknown) => {
      assert.ok(error instanceof Http2Error, name);
      assert.equal(error.code, code, name);
      return true;
    });
  }
});

Deno.test("FrameReader reads the rest of a large frame straight into the message", async () => {
  const sink = new Recorder();
  sink.room = new Uint8Array(100_000);
  const content = Uint8Array.from({ length: 90_000 }, (_, index) => index * 13);
  const connection = new MemoryConnection();
  const bytes = concat(PREFACE, dataFrame(1, content));
  connection.feed(bytes.subarray(0, 5_000));
  connection.feed(bytes.subarray(5_000));
  connection.feedEnd();
  await new FrameReader(connection, { sink, limits: LIMITS }).run(new Uint8Array(0));
  const buffered = 5_000 - PREFACE.length - 9;
  assert.equal(sink.events[1], `direct ${90_000 - buffered}`);
  assert.deepEqual(sink.room.subarray(0, 90_000 - buffered), content.subarray(buffered));
});
