const TAB = 9;
const SPACE = 32;
const DELETE = 127;
const UPPER_A = 65;
const UPPER_Z = 90;
const COLON = 58;

const TOKEN_PUNCTUATION = "!#$%&'*+-.^_`|~";

let tokenTable: Uint8Array | undefined;

/** Whether each of the 256 byte values may stand in a token (RFC 9110, 5.6.2). */
export function tokenCharacters(): Uint8Array {
  if (tokenTable !== undefined) return tokenTable;
  const table = new Uint8Array(256);
  for (const character of TOKEN_PUNCTUATION) table[character.charCodeAt(0)] = 1;
  for (let digit = 48; digit <= 57; digit++) table[digit] = 1;
  for (let letter = UPPER_A; letter <= UPPER_Z; letter++) table[letter] = table[letter + 32] = 1;
  tokenTable = table;
  return table;
}

/** A field name as HTTP/2 wants it: a lower-case token, or a pseudo-header with its colon. */
export function isFieldName(name: string): boolean {
  const table = tokenCharacters();
  const start = name.charCodeAt(0) === COLON ? 1 : 0;
  if (name.length === start) return false;
  for (let at = start; at < name.length; at++) {
    const unit = name.charCodeAt(at);
    if (table[unit] !== 1 || (unit >= UPPER_A && unit <= UPPER_Z)) return false;
  }
  return true;
}

/** A field value without control characters. */
export function isFieldValue(value: string): boolean {
  const length = value.length;
  for (let at = 0; at < length; at++) {
    const unit = value.charCodeAt(at);
    if ((unit < SPACE && unit !== TAB) || unit === DELETE || unit > 255) return false;
  }
  return true;
}

/** Whether there is white space before or after a value (RFC 9113, 8.2.1). */
export function isPadded(value: string): boolean {
  return isBlank(value.charCodeAt(0)) || isBlank(value.charCodeAt(value.length - 1));
}

function isBlank(unit: number): boolean {
  return unit === SPACE || unit === TAB;
}

/** The value of a `content-length` field; undefined when it is not one plain number. */
export function parseContentLength(value: string): number | undefined {
  const length = value.length;
  if (length === 0 || length > 15) return undefined;
  let byteSize = 0;
  for (let at = 0; at < length; at++) {
    const digit = value.charCodeAt(at) - 48;
    if (digit < 0 || digit > 9) return undefined;
    byteSize = byteSize * 10 + digit;
  }
  return byteSize;
}

/** Whether a comma-separated field value has `member`, in any case. */
export function hasListMember(value: string, member: string): boolean {
  return value.toLowerCase().split(",").some((part) => part.trim() === member);
}
