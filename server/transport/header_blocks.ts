import { encodeHeaderBlock } from "./hpack.ts";

type Fields = readonly (readonly [string, string])[];

const OK_STATUS = encodeHeaderBlock([[":status", "200"]]);

/** Blocks of frozen field lists, which never change: the lists of successful answers are the same all the time. */
export class HeaderBlockCache {
  readonly #trailers = new WeakMap<Fields, Uint8Array>();
  readonly #responses = new WeakMap<Fields, Uint8Array>();

  /** Block of a trailer section. */
  trailers(fields: Fields): Uint8Array {
    return cached(this.#trailers, fields, encodeHeaderBlock);
  }

  /** Block of a response, `:status` 200 put in front if the fields do not begin with a status. */
  response(fields: Fields): Uint8Array {
    return cached(this.#responses, fields, encodeResponse);
  }
}

function encodeResponse(fields: Fields): Uint8Array {
  const block = encodeHeaderBlock(fields);
  if (fields[0]?.[0] === ":status") return block;
  const whole = new Uint8Array(OK_STATUS.length + block.length);
  whole.set(OK_STATUS);
  whole.set(block, OK_STATUS.length);
  return whole;
}

function cached(
  cache: WeakMap<Fields, Uint8Array>,
  fields: Fields,
  encode: (fields: Fields) => Uint8Array,
): Uint8Array {
  const known = cache.get(fields);
  if (known !== undefined) return known;
  const block = encode(fields);
  if (Object.isFrozen(fields)) cache.set(fields, block);
  return block;
}
