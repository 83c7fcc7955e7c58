import { loadMachineCode } from "../machine_code.ts";
import { addressOfPointer, pointerAt } from "../memory.ts";
import type { TfCalls } from "./symbols.ts";

/** A deallocator of `TF_NewTensor`, and its argument, which stays as long as this. */
export interface StringDeallocator {
  readonly deallocate: Deno.PointerValue;
  readonly argument: BigUint64Array<ArrayBuffer>;
}

/**
 * Frees the strings of a tensor when nothing in the library uses its memory any more, which a graph may for longer than
 * a run: the library would free the memory alone. It is called on any thread. Undefined where native code of ours may
 * not run.
 */
export function createStringDeallocator(calls: TfCalls): StringDeallocator | undefined {
  try {
    const { freeStrings } = loadMachineCode();
    // {deallocate, free} as the function wants them
    const argument = new BigUint64Array(new ArrayBuffer(16));
    argument[0] = addressOfPointer(calls.stringDealloc);
    argument[1] = addressOfPointer(calls.free);
    return { deallocate: pointerAt(freeStrings), argument };
  } catch {
    return undefined;
  }
}
