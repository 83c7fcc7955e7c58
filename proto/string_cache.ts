const SLOT_COUNT = 512;
const LENGTH_MAX = 48;

/**
 * Strings that were read before, found again by their bytes: names repeat from request to request, and making a
 * string costs far more than comparing one. ASCII only, short only, a fixed number of slots.
 */
export class StringCache {
  readonly #slots: (string | undefined)[] = new Array(SLOT_COUNT).fill(undefined);

  /** The string of ASCII bytes `[start, end)`. */
  get(bytes: Uint8Array, start: number, end: number): string {
    const length = end - start;
    if (length > LENGTH_MAX) return makeString(bytes, start, end);
    let hash = length;
    for (let at = start; at < end; at++) hash = (Math.imul(hash, 31) + bytes[at]!) | 0;
    const slot = (hash ^ (hash >>> 15)) & (SLOT_COUNT - 1);
    const known = this.#slots[slot];
    if (known !== undefined && known.length === length && equals(known, bytes, start)) return known;
    const made = makeString(bytes, start, end);
    this.#slots[slot] = made;
    return made;
  }
}

function equals(text: string, bytes: Uint8Array, start: number): boolean {
  for (let index = 0; index < text.length; index++) {
    if (text.charCodeAt(index) !== bytes[start + index]) return false;
  }
  return true;
}

/** The string of ASCII bytes `[start, end)`, made anew. */
export function makeString(bytes: Uint8Array, start: number, end: number): string {
  if (end - start > 64) return new TextDecoder().decode(bytes.subarray(start, end));
  let text = "";
  for (let at = start; at < end; at++) text += String.fromCharCode(bytes[at]!);
  return text;
}
