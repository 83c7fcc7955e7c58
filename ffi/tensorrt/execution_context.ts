import type { CallList } from "../call_list.ts";
import { cString, pointerAt } from "../memory.ts";
import { DIMS_RESULT, dimsByteSize, readDims, writeDims } from "./dims.ts";
import { NativeObject } from "./native_object.ts";
import type { SlotTable } from "./slot_table.ts";

/**
 * An `IExecutionContext`. Its quick calls run at once, on the event loop's thread; what works on a device is added to
 * lists. Used for one run at a time.
 */
export class ExecutionContext {
  readonly object: NativeObject;
  readonly #table: SlotTable;
  readonly #block: Uint8Array<ArrayBuffer>;
  readonly #names = new Map<string, Uint8Array<ArrayBuffer>>();
  readonly #setInputShape;
  readonly #getTensorShape;
  readonly #setTensorAddress;
  readonly #setInputTensorAddress;
  readonly #setOutputAllocator;
  readonly #getMaxOutputSize;
  readonly #inferShapes;
  readonly #enqueue: bigint;
  readonly #setProfile: bigint;

  constructor(address: bigint, table: SlotTable) {
    const object = new NativeObject(address);
    const { context: slots, dimBits } = table;
    this.object = object;
    this.#table = table;
    this.#block = new Uint8Array(new ArrayBuffer(dimsByteSize(dimBits)));
    const setAddress = { parameters: ["buffer", "pointer"], result: "bool" } as const;
    this.#setInputShape = object.bind(slots.setInputShape, {
      parameters: ["buffer", "buffer"],
      result: "bool",
    });
    this.#getTensorShape = object.bind(slots.getTensorShape, {
      parameters: ["buffer"],
      result: DIMS_RESULT[dimBits],
    });
    this.#setTensorAddress = object.bind(slots.setTensorAddress, setAddress);
    this.#setInputTensorAddress = object.bind(slots.setInputTensorAddress, setAddress);
    this.#setOutputAllocator = object.bind(slots.setOutputAllocator, setAddress);
    this.#getMaxOutputSize = object.bind(slots.getMaxOutputSize, {
      parameters: ["buffer"],
      result: "i64",
    });
    this.#inferShapes = object.bind(slots.inferShapes, {
      parameters: ["i32", "pointer"],
      result: "i32",
    });
    this.#enqueue = object.method(slots.enqueueV3);
    this.#setProfile = object.method(slots.setOptimizationProfileAsync);
  }

  /** False when the shape does not fit the profile in use. */
  setInputShape(name: string, shape: readonly number[]): boolean {
    writeDims(this.#block, shape, this.#table.dimBits);
    return this.#setInputShape(this.#name(name), this.#block);
  }

  /** The shape as far as it is known, -1 = not yet; undefined when it cannot be told. */
  shapeOf(name: string): number[] | undefined {
    return readDims(this.#getTensorShape(this.#name(name)), this.#table.dimBits);
  }

  /** Where an input is read. */
  setInputAddress(name: string, address: bigint): boolean {
    return this.#setInputTensorAddress(this.#name(name), pointerAt(address));
  }

  /** Where an output is written. */
  setOutputAddress(name: string, address: bigint): boolean {
    return this.#setTensorAddress(this.#name(name), pointerAt(address));
  }

  setOutputAllocator(name: string, allocator: bigint): boolean {
    return this.#setOutputAllocator(this.#name(name), pointerAt(allocator));
  }

  /** Upper bound of an output's bytes at the present input shapes; -1 when there is none. */
  maxOutputByteSize(name: string): number {
    return Number(this.#getMaxOutputSize(this.#name(name)));
  }

  /** Number of inputs whose shapes or values are still missing; negative for a failure. */
  inferShapes(): number {
    return this.#inferShapes(0, null);
  }

  /** Adds the run itself to a list. */
  addEnqueue(list: CallList, stream: bigint): void {
    list.add("enqueueV3", this.#enqueue, {
      args: [this.object.implementation, stream],
      expect: "true",
    });
  }

  /** Adds the choice of an optimization profile to a list. */
  addSetProfile(list: CallList, profile: number, stream: bigint): void {
    list.add("setOptimizationProfileAsync", this.#setProfile, {
      args: [this.object.implementation, BigInt(profile), stream],
      expect: "true",
    });
  }

  /** Names in blocks of their own, one for all calls: the engine keeps what it needs. */
  #name(name: string): Uint8Array<ArrayBuffer> {
    let cName = this.#names.get(name);
    if (cName === undefined) this.#names.set(name, cName = cString(name));
    return cName;
  }
}
