import { HUFFMAN_CODE_LENGTHS } from "./hpack_tables.ts";

const END_OF_STRING = 256;
const NIBBLES = 16;
// A transition: next state in the low bits, then a decoded symbol, then what the step means.
const STATE_MASK = 0x1ff;
const SYMBOL_SHIFT = 9;
const HAS_SYMBOL = 1 << 17;
const IS_ERROR = 1 << 18;

/** The code as a state machine that eats four bits at a time. */
interface HuffmanMachine {
  readonly transitions: Int32Array;
  /** States in which a string may end: at most seven bits of padding, all ones. */
  readonly accepting: Uint8Array;
}

let machine: HuffmanMachine | undefined;

/** Decodes `bytes[start, end)`; undefined when the coding is wrong (padding, end-of-string symbol). */
export function decodeHuffman(bytes: Uint8Array, start: number, end: number): string | undefined {
  machine ??= buildMachine();
  const { transitions, accepting } = machine;
  let text = "";
  let state = 0;
  for (let at = start; at < end; at++) {
    const byte = bytes[at]!;
    for (let shift = 4; shift >= 0; shift -= 4) {
      const step = transitions[state * NIBBLES + ((byte >>> shift) & 15)]!;
      if ((step & IS_ERROR) !== 0) return undefined;
      if ((step & HAS_SYMBOL) !== 0) text += String.fromCharCode((step >>> SYMBOL_SHIFT) & 255);
      state = step & STATE_MASK;
    }
  }
  return accepting[state] === 1 ? text : undefined;
}

/** Canonical code words: by length, then by symbol. */
function codeWords(): { symbol: number; code: number; length: number }[] {
  const symbols = [...HUFFMAN_CODE_LENGTHS.keys()];
  const lengthOf = (symbol: number) => HUFFMAN_CODE_LENGTHS[symbol]!;
  symbols.sort((left, right) => lengthOf(left) - lengthOf(right) || left - right);
  let code = 0;
  let length = 0;
  return symbols.map((symbol) => {
    code = (code << (lengthOf(symbol) - length)) >>> 0;
    length = lengthOf(symbol);
    return { symbol, code: code++, length };
  });
}

/** Binary tree of the code: `children[2 * node + bit]` is a node, or `-1 - symbol`. */
function buildTree(): Int16Array {
  const children = new Int16Array(2 * 256);
  let nodeCount = 1;
  for (const { symbol, code, length } of codeWords()) {
    let node = 0;
    for (let bitIndex = length - 1; bitIndex >= 0; bitIndex--) {
      const slot = 2 * node + ((code >>> bitIndex) & 1);
      if (bitIndex === 0) {
        children[slot] = -1 - symbol;
      } else {
        if (children[slot] === 0) children[slot] = nodeCount++;
        node = children[slot]!;
      }
    }
  }
  return children;
}

function buildMachine(): HuffmanMachine {
  const children = buildTree();
  const stateCount = children.length / 2;
  const transitions = new Int32Array(stateCount * NIBBLES);
  for (let state = 0; state < stateCount; state++) {
    for (let nibble = 0; nibble < NIBBLES; nibble++) {
      transitions[state * NIBBLES + nibble] = stepFrom(children, state, nibble);
    }
  }
  const accepting = new Uint8Array(stateCount);
  let node = 0;
  for (let depth = 0; depth < 8; depth++) {
    accepting[node] = 1;
    node = children[2 * node + 1]!;
  }
  return { transitions, accepting };
}

function stepFrom(children: Int16Array, state: number, nibble: number): number {
  let node = state;
  let symbolBits = 0;
  for (let bitIndex = 3; bitIndex >= 0; bitIndex--) {
    const child = children[2 * node + ((nibble >>> bitIndex) & 1)]!;
    if (child === -1 - END_OF_STRING) return IS_ERROR;
    if (child < 0) {
      symbolBits = HAS_SYMBOL | ((-1 - child) << SYMBOL_SHIFT);
      node = 0;
    } else {
      node = child;
    }
  }
  return node | symbolBits;
}
