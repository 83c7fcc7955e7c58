import { encodeHeaderBlock } from "../../server/transport/hpack.ts";
import { encodeUint32 } from "../../server/transport/http2_frames.ts";
import {
  BLOCK,
  bytes,
  CLOSED,
  COMPRESSION,
  continuation,
  END_HEADERS,
  END_STREAM,
  extension,
  FLOW_CONTROL,
  FRAME_SIZE,
  GET,
  get,
  goaway,
  headers,
  huge,
  PADDED,
  PING,
  post,
  PRIORITY,
  priority,
  PRIORITY_FRAME,
  PROTOCOL,
  PUSH,
  raw,
  REFUSED,
  RST,
  rst,
  SETTINGS,
  WHOLE,
  WINDOW,
  withField,
  without,
  zeros,
} from "./http2_case_frames.ts";
import {
  concat,
  dataFrame,
  frame,
  headersFrame,
  POST_FIELDS,
  settingsFrame,
  windowUpdate,
} from "./http2_peer.ts";

/** What has to happen after the frames of a case. */
export type Outcome =
  /** Every listed stream gets a response, and the connection goes on. */
  | { readonly served: readonly number[] }
  /** The stream is reset with one of the codes, or the connection ends with one of them. */
  | { readonly reset: number; readonly codes: readonly number[] }
  /** The connection ends with GOAWAY and one of the codes. */
  | { readonly goaway: readonly number[] };

/** Frames of a client, sent after its preface and SETTINGS, and what RFC 9113 or RFC 7541 wants to happen. */
export interface ConformanceCase {
  readonly name: string;
  readonly send: readonly Uint8Array[];
  readonly outcome: Outcome;
}

/** Literals of RFC 7541, 6.2: pattern, name index (`:path` is 4) or name, value; plain and Huffman coded ("/" is 0x63). */
function literalCases(): ConformanceCase[] {
  const start = encodeHeaderBlock(without(":path"));
  const cases: ConformanceCase[] = [];
  const patterns: [string, number][] = [["incremental", 0x40], ["without indexing", 0], [
    "never indexed",
    0x10,
  ]];
  for (const [name, pattern] of patterns) {
    const forms: [string, Uint8Array][] = [
      ["indexed name", concat(start, bytes(pattern | 4, 1, 47))],
      ["indexed name, Huffman", concat(start, bytes(pattern | 4, 0x81, 0x63))],
      ["new name", concat(BLOCK, bytes(pattern, 1, 0x61, 1, 0x62))],
      ["new name, Huffman", concat(BLOCK, bytes(pattern, 0x81, 0x1f, 0x81, 0x1f))],
    ];
    for (const [form, block] of forms) {
      cases.push({
        name: `literal ${name}, ${form}`,
        send: [headers(1, block)],
        outcome: { served: [1] },
      });
    }
  }
  return cases;
}

const SERVED: readonly (readonly [string, readonly number[], ...Uint8Array[]])[] = [
  ["GET", [1], get()],
  ["HEAD", [1], get(1, [[":method", "HEAD"], ...without(":method")])],
  ["POST", [1], post(), dataFrame(1, bytes(1), END_STREAM)],
  [
    "POST with trailers",
    [1],
    post(),
    dataFrame(1, bytes(1)),
    headersFrame(1, [["x-sum", "1"]], WHOLE),
  ],
  ["several DATA frames", [1], post(), dataFrame(1, bytes(1)), dataFrame(1, bytes(2), END_STREAM)],
  ["padded DATA", [1], post(), dataFrame(1, bytes(5, 1, 0, 0, 0, 0, 0), END_STREAM | PADDED)],
  ["DATA of 2^14 bytes", [1], post(), dataFrame(1, zeros(16_384), END_STREAM)],
  ["padded HEADERS", [1], headers(1, concat(bytes(3), BLOCK, zeros(3)), WHOLE | PADDED)],
  ["HEADERS with priority", [1], headers(1, concat(zeros(4), bytes(9), BLOCK), WHOLE | PRIORITY)],
  [
    "padded HEADERS with priority",
    [1],
    headers(1, concat(bytes(2), zeros(4), bytes(9), BLOCK, zeros(2)), WHOLE | PRIORITY | PADDED),
  ],
  ["PRIORITY on an idle stream", [1], priority(1, 0), get()],
  ["PRIORITY with weight 256", [1], priority(1, 0, 255), get()],
  ["PRIORITY with a dependency", [3], priority(3, 1), get(3)],
  ["PRIORITY, exclusive", [3], priority(3, 0x80000001), get(3)],
  ["PRIORITY on a higher idle stream", [1], priority(99, 0), get()],
  ["PRIORITY on a half-closed stream", [1], get(), priority(1, 0)],
  ["PRIORITY on a closed stream", [1, 3], get(), priority(1, 0), get(3)],
  ["WINDOW_UPDATE on a half-closed stream", [1], get(), windowUpdate(1, 1)],
  ["WINDOW_UPDATE of the connection", [1], windowUpdate(0, 1), get()],
  [
    "WINDOW_UPDATE of a stream",
    [1],
    post(),
    windowUpdate(1, 1),
    dataFrame(1, zeros(1), END_STREAM),
  ],
  ["RST_STREAM, then another request", [3], post(), rst(1), get(3)],
  ["RST_STREAM on a closed stream", [1, 3], get(), rst(1), get(3)],
  ["RST_STREAM with an unknown code", [3], post(), rst(1, 0xff), get(3)],
  ["SETTINGS", [1], settingsFrame([3, 100], [4, 65_535]), get()],
  ["SETTINGS with an unknown identifier", [1], settingsFrame([0xff, 1]), get()],
  ["INITIAL_WINDOW_SIZE twice", [1], settingsFrame([4, 1], [4, 100_000]), get()],
  ["SETTINGS ACK", [1], frame(SETTINGS, { flags: 1 }), get()],
  ["PING ACK", [1], frame(PING, { flags: 1, payload: zeros(8) }), get()],
  ["GOAWAY", [1], goaway(0), get()],
  ["GOAWAY with an unknown code", [1], goaway(0xff), get()],
  [
    "one CONTINUATION",
    [1],
    headers(1, BLOCK.subarray(0, 9), END_STREAM),
    continuation(1, BLOCK.subarray(9)),
  ],
  [
    "several CONTINUATION",
    [1],
    headers(1, BLOCK.subarray(0, 9), END_STREAM),
    continuation(1, BLOCK.subarray(9, 12), 0),
    continuation(1, zeros(0), 0),
    continuation(1, BLOCK.subarray(12)),
  ],
  ["unknown frame type", [1], extension(), get()],
  ["unknown flags", [1], headers(1, BLOCK, WHOLE | 0xc2)],
  ["reserved bit of the stream identifier", [1], headers(0x80000001, BLOCK)],
  [
    "indexed fields",
    [1],
    headers(1, concat(bytes(0x82, 0x86, 0x84), encodeHeaderBlock([[":authority", "a"]]))),
  ],
  ["table size update", [1], headers(1, concat(bytes(0x20), BLOCK))],
  ["several table size updates", [1], headers(1, concat(bytes(0x20, 0x3f, 0xe1, 0x1f), BLOCK))],
  [
    "late trailers of a stream that was reset",
    [3],
    post(1, withField("x-A", "1")),
    dataFrame(1, zeros(1), END_STREAM),
    get(3),
  ],
  [
    "content-length that fits",
    [1],
    post(1, [...POST_FIELDS, ["content-length", "2"]]),
    dataFrame(1, bytes(1, 2), END_STREAM),
  ],
];

const RESETS: readonly (readonly [string, number, readonly number[], ...Uint8Array[]])[] = [
  [
    "DATA on a half-closed stream",
    1,
    [CLOSED],
    get(1, withField("x-wait", "1")),
    dataFrame(1, zeros(1), END_STREAM),
  ],
  ["HEADERS on a half-closed stream", 1, [CLOSED], get(1, withField("x-wait", "1")), get(1)],
  [
    "stream that depends on itself",
    1,
    [PROTOCOL],
    headers(1, concat(encodeUint32(1), bytes(9), BLOCK), WHOLE | PRIORITY),
  ],
  ["PRIORITY that depends on itself", 1, [PROTOCOL], priority(1, 1)],
  [
    "PRIORITY of the wrong size",
    1,
    [FRAME_SIZE],
    post(),
    frame(PRIORITY_FRAME, { streamId: 1, payload: zeros(4) }),
  ],
  ["WINDOW_UPDATE of 0 on a stream", 1, [PROTOCOL], post(), windowUpdate(1, 0)],
  [
    "stream window over the maximum",
    1,
    [FLOW_CONTROL],
    post(),
    windowUpdate(1, huge),
    windowUpdate(1, huge),
  ],
  [
    "trailers without END_STREAM",
    1,
    [PROTOCOL],
    post(),
    dataFrame(1, zeros(1)),
    headersFrame(1, [["x-sum", "1"]]),
  ],
  ["pseudo-header in trailers", 1, [PROTOCOL], post(), headersFrame(1, [[":path", "/"]], WHOLE)],
  ["name in upper case", 1, [PROTOCOL], get(1, withField("X-A", "1"))],
  ["unknown pseudo-header", 1, [PROTOCOL], get(1, [[":x", "1"], ...GET])],
  ["pseudo-header of responses", 1, [PROTOCOL], get(1, [[":status", "200"], ...GET])],
  ["pseudo-header behind a field", 1, [PROTOCOL], get(1, [["x-a", "1"], ...GET])],
  ["connection field", 1, [PROTOCOL], get(1, withField("connection", "keep-alive"))],
  ["transfer-encoding field", 1, [PROTOCOL], get(1, withField("transfer-encoding", "chunked"))],
  ["upgrade field", 1, [PROTOCOL], get(1, withField("upgrade", "h2c"))],
  ["te other than trailers", 1, [PROTOCOL], get(1, withField("te", "trailers, deflate"))],
  ["empty path", 1, [PROTOCOL], get(1, [...without(":path"), [":path", ""]])],
  [
    "path with a control character",
    1,
    [PROTOCOL],
    get(1, [...without(":path"), [":path", "/\x7f"]]),
  ],
  ["no method", 1, [PROTOCOL], get(1, without(":method"))],
  ["no scheme", 1, [PROTOCOL], get(1, without(":scheme"))],
  ["no path", 1, [PROTOCOL], get(1, without(":path"))],
  ["two methods", 1, [PROTOCOL], get(1, [[":method", "GET"], ...GET])],
  ["two schemes", 1, [PROTOCOL], get(1, [[":scheme", "http"], ...GET])],
  ["two paths", 1, [PROTOCOL], get(1, [[":path", "/"], ...GET])],
  ["two authorities", 1, [PROTOCOL], get(1, [[":authority", "a"], ...GET])],
  ["value with CR LF", 1, [PROTOCOL], get(1, withField("x-a", "b\r\nc: d"))],
  ["value with NUL", 1, [PROTOCOL], get(1, withField("x-a", "b\0"))],
  ["content-length without body", 1, [PROTOCOL], get(1, withField("content-length", "1"))],
  [
    "content-length too small",
    1,
    [PROTOCOL],
    post(1, [...POST_FIELDS, ["content-length", "1"]]),
    dataFrame(1, zeros(2), END_STREAM),
  ],
  [
    "content-length too large",
    1,
    [PROTOCOL],
    post(1, [...POST_FIELDS, ["content-length", "9"]]),
    dataFrame(1, zeros(2)),
    dataFrame(1, zeros(2), END_STREAM),
  ],
  [
    "content-length too large, with trailers",
    1,
    [PROTOCOL],
    post(1, [...POST_FIELDS, ["content-length", "9"]]),
    dataFrame(1, zeros(2)),
    headersFrame(1, [["x-a", "1"]], WHOLE),
  ],
  [
    "two different content-lengths",
    1,
    [PROTOCOL],
    post(1, [...POST_FIELDS, ["content-length", "1"], ["content-length", "2"]]),
  ],
  [
    "content-length that is no number",
    1,
    [PROTOCOL],
    post(1, [...POST_FIELDS, ["content-length", "+1"]]),
  ],
  ["stream over the concurrency limit", 7, [REFUSED], post(1), post(3), post(5), post(7)],
];

const GOAWAYS: readonly (readonly [string, readonly number[], ...Uint8Array[]])[] = [
  ["invalid header block", [COMPRESSION], headers(1, bytes(0xff))],
  ["index 0", [COMPRESSION], raw(0x80)],
  ["index behind the tables", [COMPRESSION], raw(0xff, 0x80, 1)],
  ["name index behind the tables", [COMPRESSION], raw(0x7f, 0x80, 1, 1, 0x61)],
  ["table size update at the end", [COMPRESSION], raw(0x20)],
  [
    "table size over the setting",
    [COMPRESSION],
    headers(1, concat(bytes(0x3f, 0xe2, 0x1f), BLOCK)),
  ],
  ["Huffman padding of more than 7 bits", [COMPRESSION], raw(0, 0x81, 0x1f, 0x82, 0x1f, 0xff)],
  ["Huffman padding with zeros", [COMPRESSION], raw(0, 0x81, 0x1f, 0x81, 0x18)],
  ["Huffman end of string", [COMPRESSION], raw(0, 0x81, 0x1f, 0x84, 0xff, 0xff, 0xff, 0xff)],
  ["DATA over the frame size", [FRAME_SIZE], post(), dataFrame(1, zeros(16_385))],
  ["HEADERS over the frame size", [FRAME_SIZE], headers(1, zeros(16_385))],
  ["PRIORITY inside a header block", [PROTOCOL], headers(1, BLOCK, 0), priority(1, 0)],
  ["HEADERS of another stream inside a header block", [PROTOCOL], headers(1, BLOCK, 0), get(3)],
  ["DATA inside a header block", [PROTOCOL], headers(1, BLOCK, 0), dataFrame(1, zeros(1))],
  ["extension inside a header block", [PROTOCOL], headers(1, BLOCK, 0), extension()],
  ["CONTINUATION of another stream", [PROTOCOL], headers(1, BLOCK, 0), continuation(3, zeros(0))],
  ["CONTINUATION on stream 0", [PROTOCOL], headers(1, BLOCK, 0), continuation(0, zeros(0))],
  ["CONTINUATION after END_HEADERS", [PROTOCOL], post(), continuation(1, zeros(0))],
  [
    "CONTINUATION after the last CONTINUATION",
    [PROTOCOL],
    headers(1, BLOCK, END_STREAM),
    continuation(1, zeros(0)),
    continuation(1, zeros(0)),
  ],
  [
    "CONTINUATION after DATA",
    [PROTOCOL],
    post(),
    dataFrame(1, zeros(1)),
    continuation(1, zeros(0)),
  ],
  ["CONTINUATION on an idle stream", [PROTOCOL], continuation(1, BLOCK)],
  ["DATA on an idle stream", [PROTOCOL], dataFrame(1, zeros(1), END_STREAM)],
  ["RST_STREAM on an idle stream", [PROTOCOL], rst(1)],
  ["WINDOW_UPDATE on an idle stream", [PROTOCOL], windowUpdate(1, 100)],
  ["DATA after RST_STREAM", [CLOSED], post(), rst(1), dataFrame(1, zeros(1))],
  ["HEADERS after RST_STREAM", [CLOSED], post(), rst(1), get(1)],
  ["CONTINUATION after RST_STREAM", [PROTOCOL, CLOSED], post(), rst(1), continuation(1, BLOCK)],
  ["DATA on a closed stream", [CLOSED], get(), dataFrame(1, zeros(1))],
  ["HEADERS on a closed stream", [CLOSED], get(), get()],
  ["CONTINUATION on a closed stream", [PROTOCOL, CLOSED], get(), continuation(1, BLOCK)],
  ["even stream identifier", [PROTOCOL], get(2)],
  ["stream identifier lower than before", [PROTOCOL], get(5), get(3)],
  ["DATA on stream 0", [PROTOCOL], dataFrame(0, zeros(1))],
  [
    "DATA with too much padding",
    [PROTOCOL],
    post(),
    dataFrame(1, bytes(6, 0, 0), END_STREAM | PADDED),
  ],
  ["HEADERS on stream 0", [PROTOCOL], get(0)],
  [
    "HEADERS with too much padding",
    [PROTOCOL],
    headers(1, concat(bytes(255), BLOCK), WHOLE | PADDED),
  ],
  [
    "HEADERS too short for its priority",
    [FRAME_SIZE, PROTOCOL],
    headers(1, zeros(3), WHOLE | PRIORITY),
  ],
  ["PRIORITY on stream 0", [PROTOCOL], priority(0, 1)],
  ["RST_STREAM on stream 0", [PROTOCOL], rst(0)],
  [
    "RST_STREAM of the wrong size",
    [FRAME_SIZE],
    post(),
    frame(RST, { streamId: 1, payload: zeros(3) }),
  ],
  ["SETTINGS ACK with payload", [FRAME_SIZE], frame(SETTINGS, { flags: 1, payload: zeros(6) })],
  ["SETTINGS on a stream", [PROTOCOL], frame(SETTINGS, { streamId: 1, payload: zeros(6) })],
  ["SETTINGS of the wrong size", [FRAME_SIZE], frame(SETTINGS, { payload: zeros(3) })],
  ["ENABLE_PUSH of 2", [PROTOCOL], settingsFrame([2, 2])],
  ["INITIAL_WINDOW_SIZE over the maximum", [FLOW_CONTROL], settingsFrame([4, 2 ** 31])],
  ["MAX_FRAME_SIZE too small", [PROTOCOL], settingsFrame([5, 16_383])],
  ["MAX_FRAME_SIZE too large", [PROTOCOL], settingsFrame([5, 16_777_216])],
  [
    "INITIAL_WINDOW_SIZE that lifts a stream over the maximum",
    [FLOW_CONTROL],
    post(),
    windowUpdate(1, huge - 65_535),
    settingsFrame([4, 65_536]),
  ],
  ["PING on a stream", [PROTOCOL], frame(PING, { streamId: 1, payload: zeros(8) })],
  ["PING of the wrong size", [FRAME_SIZE], frame(PING, { payload: zeros(6) })],
  ["GOAWAY on a stream", [PROTOCOL], goaway(0, 1)],
  [
    "PUSH_PROMISE",
    [PROTOCOL],
    frame(PUSH, { streamId: 1, flags: END_HEADERS, payload: concat(encodeUint32(2), BLOCK) }),
  ],
  ["WINDOW_UPDATE of 0", [PROTOCOL], windowUpdate(0, 0)],
  ["WINDOW_UPDATE of the wrong size", [FRAME_SIZE], frame(WINDOW, { payload: zeros(3) })],
  [
    "connection window over the maximum",
    [FLOW_CONTROL],
    windowUpdate(0, huge),
    windowUpdate(0, huge),
  ],
];

export const CONFORMANCE_CASES: readonly ConformanceCase[] = [
  ...SERVED.map(([name, served, ...send]) => ({ name, send, outcome: { served } })),
  ...literalCases(),
  ...RESETS.map(([name, reset, codes, ...send]) => ({ name, send, outcome: { reset, codes } })),
  ...GOAWAYS.map(([name, goaway, ...send]) => ({ name, send, outcome: { goaway } })),
];
