const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const PADDING = "=".charCodeAt(0);
const NOT_A_DIGIT = 64;

const DIGITS = new Uint8Array(128).fill(NOT_A_DIGIT);
for (let digit = 0; digit < ALPHABET.length; digit++) DIGITS[ALPHABET.charCodeAt(digit)] = digit;

/** Decodes base64 as leniently as the reference does: characters of no meaning are passed over (http.md §5.2). */
export function decodeBase64(text: string): Uint8Array {
  const decoded = new Uint8Array(Math.floor((text.length * 3) / 4));
  let length = 0;
  let bits = 0;
  let bitCount = 0;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code === PADDING) break;
    const digit = code < 128 ? DIGITS[code]! : NOT_A_DIGIT;
    if (digit === NOT_A_DIGIT) continue;
    bits = ((bits << 6) | digit) & 0xffff;
    bitCount += 6;
    if (bitCount >= 8) {
      bitCount -= 8;
      decoded[length++] = bits >> bitCount;
    }
  }
  return decoded.subarray(0, length);
}
