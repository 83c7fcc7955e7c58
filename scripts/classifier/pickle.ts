/** What is in a pickle of plain values. Names of functions and classes stay names: nothing is called. */
export type PickleValue =
  | undefined
  | null
  | boolean
  | number
  | bigint
  | string
  | PickleValue[]
  | Map<PickleValue, PickleValue>
  | PickleName
  | PickleCall
  | PicklePersistent;

/** A function or class that a pickle names. */
export interface PickleName {
  readonly name: string;
}

/** An object as the call that makes it. */
export interface PickleCall {
  readonly callee: string;
  readonly args: readonly PickleValue[];
}

/** An object that lies outside of the pickle. */
export interface PicklePersistent {
  readonly persistentId: PickleValue;
}

const ORDERED_DICT = "collections.OrderedDict";
const MARK = Symbol("mark");

type Step = (reader: Machine) => void;

/** Reads pickles (protocol 2) that stand one behind the other; only what checkpoints are made of is understood. */
export class PickleReader {
  readonly #bytes: Uint8Array;
  #offset = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** Where the next pickle, or what stands behind the last, begins. */
  get offset(): number {
    return this.#offset;
  }

  /** The next pickle. @throws Error for an instruction that is not known. */
  read(): PickleValue {
    const machine = new Machine(this.#bytes, this.#offset);
    const value = machine.run();
    this.#offset = machine.offset;
    return value;
  }
}

class Machine {
  readonly stack: (PickleValue | typeof MARK)[] = [];
  readonly memo = new Map<number, PickleValue>();
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  offset: number;

  constructor(bytes: Uint8Array, offset: number) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.offset = offset;
  }

  run(): PickleValue {
    for (;;) {
      const at = this.offset;
      const code = this.uint8();
      if (code === STOP) return this.pop();
      const step = STEPS.get(code);
      if (step === undefined) {
        throw new Error(`Pickle instruction 0x${code.toString(16)} at byte ${at} is not known`);
      }
      step(this);
    }
  }

  uint8(): number {
    return this.#view.getUint8(this.offset++);
  }

  uint16(): number {
    this.offset += 2;
    return this.#view.getUint16(this.offset - 2, true);
  }

  int32(): number {
    this.offset += 4;
    return this.#view.getInt32(this.offset - 4, true);
  }

  text(length: number): string {
    this.offset += length;
    return new TextDecoder().decode(this.#bytes.subarray(this.offset - length, this.offset));
  }

  line(): string {
    const end = this.#bytes.indexOf(10, this.offset);
    const text = this.text(end - this.offset);
    this.offset++;
    return text;
  }

  push(value: PickleValue): void {
    this.stack.push(value);
  }

  pop(): PickleValue {
    const value = this.stack.pop();
    if (value === MARK || this.stack.length === 0 && value === undefined) {
      throw new Error(`The pickle has no value before byte ${this.offset}`);
    }
    return value;
  }

  popToMark(): PickleValue[] {
    const mark = this.stack.lastIndexOf(MARK);
    if (mark < 0) throw new Error(`The pickle has no mark before byte ${this.offset}`);
    return this.stack.splice(mark).slice(1) as PickleValue[];
  }

  popMany(count: number): PickleValue[] {
    return this.stack.splice(-count) as PickleValue[];
  }

  top(): PickleValue {
    return this.stack.at(-1) as PickleValue;
  }
}

const STOP = 0x2e;

const STEPS: ReadonlyMap<number, Step> = new Map<number, Step>([
  [0x80, (machine) => void machine.uint8()], // PROTO
  [0x28, ({ stack }) => void stack.push(MARK)], // MARK
  [0x4e, (machine) => machine.push(null)], // NONE
  [0x88, (machine) => machine.push(true)], // NEWTRUE
  [0x89, (machine) => machine.push(false)], // NEWFALSE
  [0x4b, (machine) => machine.push(machine.uint8())], // BININT1
  [0x4d, (machine) => machine.push(machine.uint16())], // BININT2
  [0x4a, (machine) => machine.push(machine.int32())], // BININT
  [0x8a, readLong], // LONG1
  [0x58, (machine) => machine.push(machine.text(machine.int32()))], // BINUNICODE
  [0x63, (machine) => machine.push({ name: `${machine.line()}.${machine.line()}` })], // GLOBAL
  [0x7d, (machine) => machine.push(new Map())], // EMPTY_DICT
  [0x5d, (machine) => machine.push([])], // EMPTY_LIST
  [0x29, (machine) => machine.push([])], // EMPTY_TUPLE
  [0x74, (machine) => machine.push(machine.popToMark())], // TUPLE
  [0x85, (machine) => machine.push(machine.popMany(1))], // TUPLE1
  [0x86, (machine) => machine.push(machine.popMany(2))], // TUPLE2
  [0x87, (machine) => machine.push(machine.popMany(3))], // TUPLE3
  [0x65, (machine) => appendTo(machine.popToMark(), machine)], // APPENDS
  [0x75, (machine) => setIn(machine.popToMark(), machine)], // SETITEMS
  [0x73, (machine) => setIn(machine.popMany(2), machine)], // SETITEM
  [0x62, (machine) => void machine.pop()], // BUILD: attributes of an object are not looked at
  [0x52, reduce], // REDUCE
  [0x51, (machine) => machine.push({ persistentId: machine.pop() })], // BINPERSID
  [0x71, (machine) => void machine.memo.set(machine.uint8(), machine.top())], // BINPUT
  [0x72, (machine) => void machine.memo.set(machine.int32(), machine.top())], // LONG_BINPUT
  [0x68, (machine) => machine.push(machine.memo.get(machine.uint8()))], // BINGET
  [0x6a, (machine) => machine.push(machine.memo.get(machine.int32()))], // LONG_BINGET
]);

function readLong(machine: Machine): void {
  const count = machine.uint8();
  let value = 0n;
  for (let index = 0; index < count; index++) {
    value |= BigInt(machine.uint8()) << BigInt(8 * index);
  }
  machine.push(BigInt.asIntN(8 * count, value));
}

function reduce(machine: Machine): void {
  const args = machine.pop() as PickleValue[];
  const { name } = machine.pop() as PickleName;
  machine.push(name === ORDERED_DICT ? new Map() : { callee: name, args });
}

function appendTo(values: readonly PickleValue[], machine: Machine): void {
  (machine.top() as PickleValue[]).push(...values);
}

function setIn(pairs: readonly PickleValue[], machine: Machine): void {
  const target = machine.top() as Map<PickleValue, PickleValue>;
  for (let index = 0; index < pairs.length; index += 2) target.set(pairs[index], pairs[index + 1]);
}
