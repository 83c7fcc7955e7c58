import type { MachineCode } from "../machine_code.ts";
import { addressOf, cString } from "../memory.ts";
import { readDims } from "./dims.ts";
import type { SlotTable } from "./slot_table.ts";

const CELL_COUNT = 15;
const CAPACITY_CELL = 1;
const ADDRESS_CELL = 2;
const NEEDED_CELL = 3;
const DIMS_CELL = 4;
const KIND_CELL = 14;
const DIMS_BYTE_OFFSET = 8 * DIMS_CELL;

/**
 * An `IOutputAllocator` for an output whose shape is known only when it was computed. It is machine code, so it may be
 * called from any thread: it hands out one block of device memory when that is large enough, else it notes how much
 * was needed, the run fails, and can be made again with a larger block.
 */
export class OutputAllocator {
  readonly #table: SlotTable;
  readonly #cells: BigUint64Array<ArrayBuffer> = new BigUint64Array(
    new ArrayBuffer(8 * CELL_COUNT),
  );
  /** Reached by native code only. */
  readonly #kept: readonly object[];

  constructor(code: MachineCode, table: SlotTable) {
    this.#table = table;
    const notify = table.dimBits === 64 ? code.notify64 : code.notify32;
    const { zero, one, reallocate, allocatorKind } = code;
    const methods = new BigUint64Array(new ArrayBuffer(8 * 7));
    methods.set(
      table.versionsAllocator
        ? [zero, allocatorKind, zero, zero, reallocate, reallocate, notify]
        : [one, reallocate, notify, zero, zero],
    );
    const kind = cString("IOutputAllocator");
    this.#cells[0] = addressOf(methods);
    this.#cells[KIND_CELL] = addressOf(kind);
    this.#kept = [methods, kind];
  }

  /** Address of the `IOutputAllocator`. It must outlive the context it was given to. */
  get address(): bigint {
    return this.#kept.length === 0 ? 0n : addressOf(this.#cells);
  }

  /** Sets the block to hand out. */
  setBlock(address: bigint, byteSize: number): void {
    this.#cells[ADDRESS_CELL] = address;
    this.#cells[CAPACITY_CELL] = BigInt(byteSize);
  }

  /** Forgets size and shape of the run before. */
  reset(): void {
    this.#cells[NEEDED_CELL] = 0n;
    this.#cells.fill(0n, DIMS_CELL, KIND_CELL);
    this.#cells[DIMS_CELL] = 0xffff_ffffn;
  }

  /** Bytes that the largest request wanted, since {@linkcode reset}. */
  get neededByteSize(): number {
    return Number(this.#cells[NEEDED_CELL]);
  }

  /** The shape that was told; undefined when none was. */
  get shape(): number[] | undefined {
    const bytes = new Uint8Array(this.#cells.buffer, DIMS_BYTE_OFFSET, 8 * (KIND_CELL - DIMS_CELL));
    return readDims(bytes, this.#table.dimBits);
  }
}
