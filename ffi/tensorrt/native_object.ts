import { addressOfPointer, pointerAt } from "../memory.ts";

const IMPLEMENTATION_OFFSET = 8;
const POINTER_BYTE_SIZE = 8;
const DELETING_DESTRUCTOR_SLOT = 1;

/** Definition of a method; the object itself is left out. */
interface MethodDefinition {
  readonly parameters: readonly Deno.NativeType[];
  readonly result: Deno.NativeResultType;
}

/**
 * An object of TensorRT: `{vptr, mImpl}`. The public class has virtual destructors only; all else is a virtual method
 * of the object `mImpl` points to (native-abi.md §1.2).
 */
export class NativeObject {
  /** Address of the public object. */
  readonly address: bigint;
  /** Address of the object that has the methods: the first argument of each. */
  readonly implementation: bigint;
  readonly #methods: Deno.UnsafePointerView;

  constructor(address: bigint) {
    this.address = address;
    this.implementation = readPointer(address + BigInt(IMPLEMENTATION_OFFSET));
    this.#methods = viewAt(readPointer(this.implementation));
  }

  /** Address of a method's code. */
  method(slot: number): bigint {
    return addressOfPointer(this.#methods.getPointer(slot * POINTER_BYTE_SIZE));
  }

  /** A function that calls a method at once, on the event loop's thread. */
  bind<const Definition extends MethodDefinition>(
    slot: number,
    { parameters, result }: Definition,
  ): (
    ...args: Deno.ToNativeParameterTypes<Definition["parameters"]>
  ) => Deno.FromNativeResultType<Definition["result"]> {
    const pointer = pointerAt(this.method(slot)) as Deno.PointerObject<never>;
    const definition = { parameters: ["pointer", ...parameters], result };
    const method = new Deno.UnsafeFnPointer(pointer, definition as Deno.ForeignFunction);
    const self = pointerAt(this.implementation);
    const call = method.call as (...args: unknown[]) => unknown;
    return (...args) =>
      call.call(method, self, ...args) as Deno.FromNativeResultType<Definition["result"]>;
  }

  /** Address of the destructor that also frees; it takes {@linkcode address}. */
  get destructor(): bigint {
    const table = viewAt(readPointer(this.address));
    return addressOfPointer(table.getPointer(DELETING_DESTRUCTOR_SLOT * POINTER_BYTE_SIZE));
  }
}

function viewAt(address: bigint): Deno.UnsafePointerView {
  const pointer = pointerAt(address);
  if (pointer === null) throw new TypeError("An object of TensorRT has no table of methods");
  return new Deno.UnsafePointerView(pointer);
}

function readPointer(address: bigint): bigint {
  return addressOfPointer(viewAt(address).getPointer(0));
}
