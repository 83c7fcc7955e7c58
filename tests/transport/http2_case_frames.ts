import { encodeHeaderBlock } from "../../server/transport/hpack.ts";
import { encodeUint32 } from "../../server/transport/http2_frames.ts";
import { concat, frame, headersFrame, POST_FIELDS } from "./http2_peer.ts";

// Building blocks of the conformance cases: codes, flags and frames under short names.

export const PROTOCOL = 1;
export const FLOW_CONTROL = 3;
export const CLOSED = 5;
export const FRAME_SIZE = 6;
export const REFUSED = 7;
export const COMPRESSION = 9;

export const END_STREAM = 1;
export const END_HEADERS = 4;
export const PADDED = 8;
export const PRIORITY = 32;
export const WHOLE = END_STREAM | END_HEADERS;

export const HEADERS = 1;
export const PRIORITY_FRAME = 2;
export const RST = 3;
export const SETTINGS = 4;
export const PUSH = 5;
export const PING = 6;
export const GOAWAY = 7;
export const WINDOW = 8;
export const CONTINUATION = 9;

export type Fields = readonly (readonly [string, string])[];

export const GET: Fields = [
  [":method", "GET"],
  [":scheme", "http"],
  [":path", "/"],
  [":authority", "localhost"],
];
export const BLOCK = encodeHeaderBlock(GET);
export const zeros = (count: number) => new Uint8Array(count);
export const bytes = (...values: number[]) => Uint8Array.from(values);

export const get = (streamId = 1, fields = GET) => headersFrame(streamId, fields, WHOLE);
export const post = (streamId = 1, fields = POST_FIELDS) =>
  headersFrame(streamId, fields, END_HEADERS);
export const withField = (...field: [string, string]) => [...GET, field];
export const without = (name: string) => GET.filter((field) => field[0] !== name);
export const priority = (streamId: number, dependency: number, weight = 15) =>
  frame(PRIORITY_FRAME, { streamId, payload: concat(encodeUint32(dependency), bytes(weight)) });
export const rst = (streamId: number, code = 8) =>
  frame(RST, { streamId, payload: encodeUint32(code) });
export const continuation = (streamId: number, payload: Uint8Array, flags = END_HEADERS) =>
  frame(CONTINUATION, { streamId, flags, payload });
export const headers = (streamId: number, payload: Uint8Array, flags = WHOLE) =>
  frame(HEADERS, { streamId, flags, payload });
export const raw = (...block: number[]) => headers(1, concat(BLOCK, bytes(...block)));
export const goaway = (code: number, streamId = 0) =>
  frame(GOAWAY, { streamId, payload: concat(encodeUint32(0), encodeUint32(code)) });
export const extension = (streamId = 0) => frame(22, { flags: 0, streamId, payload: zeros(8) });
export const huge = 2 ** 31 - 1;
