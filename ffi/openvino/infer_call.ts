import { CallList, type CallRunner, createCallRunner } from "../call_list.ts";
import type { NativePointer } from "../handle.ts";
import { loadMachineCode } from "../machine_code.ts";
import { addressOf, addressOfPointer, pointerAt } from "../memory.ts";
import { failureOf, GENERAL_ERROR, OvError, takeText } from "./error.ts";
import type { OvCalls } from "./symbols.ts";

const LIBC_SYMBOLS = {
  // int memcmp(const void* left, const void* right, size_t length)
  memcmp: { type: "pointer" },
} as const satisfies Deno.ForeignLibraryInterface;

const STATUS_BYTE_SIZE = 4n;

/** What runs calls in a row, and the function that ends a row behind a call that did not fail. */
export interface RowTools {
  readonly runner: CallRunner;
  readonly compare: bigint;
}

/** Undefined where calls cannot be run in a row: texts of failures at the same moment may then be mixed up. */
export function openRowTools(): RowTools | undefined {
  try {
    const runner = createCallRunner(loadMachineCode());
    const { memcmp } = Deno.dlopen("libc.so.6", LIBC_SYMBOLS).symbols;
    return { runner, compare: addressOfPointer(memcmp) };
  } catch {
    return undefined;
  }
}

/**
 * The run of an infer request. The library has one text of the last failure for the whole process, and other threads
 * fail while ours is on its way to us: a failed run fetches its text at once, on its own thread.
 */
export class InferCall {
  readonly #calls: OvCalls;
  readonly #request: NativePointer;
  readonly #runner: CallRunner | undefined;
  readonly #list = new CallList();
  /** `ov_status_e` of a failure. */
  readonly #failure = Int32Array.of(GENERAL_ERROR);

  constructor(calls: OvCalls, request: NativePointer, tools: RowTools | undefined) {
    this.#calls = calls;
    this.#request = request;
    this.#runner = tools?.runner;
    if (tools === undefined) return;
    const list = this.#list;
    const infer = addressOfPointer(calls.inferAddress as Deno.PointerValue);
    const getText = addressOfPointer(calls.lastErrorAddress as Deno.PointerValue);
    list.keep(this.#failure);
    list.add("ov_infer_request_infer", infer, {
      args: [addressOfPointer(request)],
      expect: "anything",
    });
    // Ends the row unless the run failed: each text is a copy that somebody must free.
    list.add("memcmp", tools.compare, {
      args: [list.resultAddress(0), addressOf(this.#failure), STATUS_BYTE_SIZE],
    });
    list.add("ov_get_last_err_msg", getText, { args: [], expect: "anything" });
  }

  /** Runs on the blocking pool. @returns the failure, if any. */
  async run(): Promise<OvError | undefined> {
    const calls = this.#calls;
    if (this.#runner === undefined) {
      const status = await calls.ov_infer_request_infer(this.#request);
      return status === 0 ? undefined : failureOf(calls, status);
    }
    const list = this.#list;
    const ended = await list.run(this.#runner);
    const status = Number(BigInt.asIntN(32, list.result(0)));
    if (status === 0) return undefined;
    if (ended !== undefined) return failureOf(calls, status);
    return new OvError(status, takeText(calls, pointerAt(list.result(2))));
  }
}
