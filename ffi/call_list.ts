import type { MachineCode } from "./machine_code.ts";
import { addressOf, pointerAt, whileHolding } from "./memory.ts";

/** Which results of a native function are good. */
export type Expectation = "status 0" | "true" | "anything";

/** One call of a list that did not give what was expected. */
export interface FailedCall {
  readonly name: string;
  readonly index: number;
  /** The whole result register. */
  readonly result: bigint;
}

/** Runs lists of calls. */
export type CallRunner = Deno.UnsafeFnPointer<typeof RUN_CALLS>;

const RUN_CALLS = {
  // size_t runCalls(call* list, size_t count)
  parameters: ["buffer", "usize"],
  result: "usize",
  nonblocking: true,
} as const;

const CELLS_PER_CALL = 8;
const RESULT_CELL = 7;
/** Low half: mask, high half: expected value. */
const EXPECTATIONS: Readonly<Record<Expectation, bigint>> = {
  "status 0": 0xffff_ffffn,
  "true": 1n << 32n | 0xffn,
  "anything": 0n,
};

/** The way to run lists of calls by the loaded machine code. */
export function createCallRunner(code: MachineCode): CallRunner {
  return new Deno.UnsafeFnPointer(
    pointerAt(code.runCalls) as Deno.PointerObject<never>,
    RUN_CALLS,
  );
}

/**
 * Native calls that run one after the other on one thread of the blocking pool, as one call of ours: what a thread has
 * chosen for itself, such as the current device, holds for the whole list, and the event loop never waits
 * (native-abi.md §0). Up to five arguments of integer or pointer kind each.
 */
export class CallList {
  readonly #names: string[] = [];
  readonly #kept: object[] = [];
  #cells: BigUint64Array<ArrayBuffer> = new BigUint64Array(new ArrayBuffer(16 * 64));

  get length(): number {
    return this.#names.length;
  }

  /** Adds a call of the function at an address. */
  add(
    name: string,
    address: bigint,
    { args, expect = "status 0" }: {
      readonly args: readonly bigint[];
      readonly expect?: Expectation;
    },
  ): void {
    if (args.length > 5) throw new RangeError(`Cannot call ${name} with ${args.length} arguments`);
    const start = this.length * CELLS_PER_CALL;
    if (start + CELLS_PER_CALL > this.#cells.length) this.#grow();
    const cells = this.#cells;
    cells[start] = address;
    for (let index = 0; index < 5; index++) cells[start + 1 + index] = args[index] ?? 0n;
    cells[start + 6] = EXPECTATIONS[expect];
    cells[start + RESULT_CELL] = 0n;
    this.#names.push(name);
  }

  /** Keeps an object whose memory the calls use from being collected as long as the list has them. */
  keep(object: object): void {
    this.#kept.push(object);
  }

  /** What the call at `index` gave. */
  result(index: number): bigint {
    return this.#cells[index * CELLS_PER_CALL + RESULT_CELL] ?? 0n;
  }

  /** Where the result of the call at `index` will be, as long as the list does not grow. */
  resultAddress(index: number): bigint {
    return addressOf(this.#cells) + BigInt((index * CELLS_PER_CALL + RESULT_CELL) * 8);
  }

  clear(): void {
    this.#names.length = 0;
    this.#kept.length = 0;
  }

  /** Runs all calls; undefined when each gave what was expected, else the first that did not, behind which none ran. */
  async run(runner: CallRunner): Promise<FailedCall | undefined> {
    const count = this.length;
    const cells = this.#cells;
    const done = Number(
      await whileHolding([cells, this.#kept], () => runner.call(cells, BigInt(count))),
    );
    if (done >= count) return undefined;
    return { name: this.#names[done]!, index: done, result: this.result(done) };
  }

  #grow(): void {
    const cells = new BigUint64Array(new ArrayBuffer(this.#cells.byteLength * 2));
    cells.set(this.#cells);
    this.#cells = cells;
  }
}
