import { CallList } from "../call_list.ts";
import type { DeviceCalls } from "../cuda/device_calls.ts";
import { addressOf, cString, readCString } from "../memory.ts";
import { isCode } from "./code_ranges.ts";
import { readSignature } from "./engine.ts";
import { refusal, TensorRtError } from "./error.ts";
import { ExecutionContext } from "./execution_context.ts";
import type { TensorRtLibrary } from "./library.ts";
import { NativeObject } from "./native_object.ts";
import type { EngineSignature } from "./signature.ts";

/** An engine on a device. */
export interface LoadedEngine {
  readonly object: NativeObject;
  readonly signature: EngineSignature;
}

const STATIC_STRATEGY = 0;

/**
 * An `IRuntime` on one device. Every call that takes time runs as a list on the blocking pool. The caller makes one
 * call at a time, so that the lines of the log can be told apart, and disposes of engines and contexts before.
 */
export class TensorRtRuntime implements AsyncDisposable {
  readonly library: TensorRtLibrary;
  readonly device: DeviceCalls;
  readonly #object: NativeObject;
  #dlaCore = 0;

  private constructor(library: TensorRtLibrary, device: DeviceCalls, object: NativeObject) {
    this.library = library;
    this.device = device;
    this.#object = object;
  }

  /**
   * Makes a runtime and checks that its methods are where they are expected (native-abi.md §1.8, 2 and 3).
   * @throws TensorRtError when they are not, or TensorRT refuses; CudaError when the device does.
   */
  static async create(library: TensorRtLibrary, device: DeviceCalls): Promise<TensorRtRuntime> {
    const position = library.logger.mark();
    const list = new CallList();
    device.begin(list);
    list.add("createInferRuntime_INTERNAL", library.createRuntime, {
      args: [library.logger.address, BigInt(library.version.number)],
      expect: "anything",
    });
    await device.run(list);
    const address = list.result(list.length - 1);
    if (address === 0n) {
      throw refusal("Cannot create a TensorRT runtime", library.logger.since(position));
    }
    const object = new NativeObject(address);
    const { runtime: slots } = library.table;
    checkSlots(library, object, { what: "runtime", slots });
    const pointer = { parameters: [], result: "u64" } as const;
    if (object.bind(slots.getLogger, pointer)() !== library.logger.address) {
      throw strangeLibrary(library, "getLogger() of the runtime does not give our logger");
    }
    if (object.bind(slots.getPImpl, pointer)() !== address) {
      throw strangeLibrary(library, "getPImpl() of the runtime does not give the runtime");
    }
    return new TensorRtRuntime(library, device, object);
  }

  /** Lets plans carry code for the processor, as version-compatible plans do. */
  allowHostCode(): void {
    const { setEngineHostCodeAllowed } = this.library.table.runtime;
    this.#object.bind(setEngineHostCodeAllowed, { parameters: ["bool"], result: "void" })(true);
  }

  /** Chooses the core of the deep learning accelerator for engines to come; the first unless told otherwise. */
  useDlaCore(core: number): void {
    if (core === this.#dlaCore) return;
    this.#dlaCore = core;
    const { setDLACore } = this.library.table.runtime;
    this.#object.bind(setDLACore, { parameters: ["i32"], result: "void" })(core);
  }

  /**
   * Makes an engine of a plan and reads its signature.
   * @throws TensorRtError with TensorRT's reasons when it takes the plan for broken or foreign.
   */
  async deserialize(plan: Uint8Array<ArrayBuffer>): Promise<LoadedEngine> {
    const { library, device } = this;
    const position = library.logger.mark();
    const list = new CallList();
    list.keep(plan);
    device.begin(list);
    const size = BigInt(plan.byteLength);
    list.add(
      "deserializeCudaEngine",
      this.#object.method(library.table.runtime.deserializeCudaEngine),
      { args: [this.#object.implementation, addressOf(plan), size, 0n], expect: "anything" },
    );
    await device.run(list);
    const address = list.result(list.length - 1);
    if (address === 0n) {
      throw refusal("TensorRT cannot read the plan", library.logger.since(position));
    }
    const object = new NativeObject(address);
    try {
      checkSlots(library, object, { what: "engine", slots: library.table.engine });
      return { object, signature: readSignature(object, library.table) };
    } catch (error) {
      // An engine of unknown make is left alone: its destructor may not be one.
      if (!(error instanceof TensorRtError)) throw error;
      throw strangeLibrary(library, error.message);
    }
  }

  /** @throws TensorRtError, for instance when the device has no memory left. */
  async createContext(
    { object: engine }: LoadedEngine,
    { name, allocationStrategy = STATIC_STRATEGY }: {
      readonly name: string;
      /** When memory for the computation is taken: 0 = at once for all profiles, 1 = on profile change. */
      readonly allocationStrategy?: number;
    },
  ): Promise<ExecutionContext> {
    const { library, device } = this;
    const { context: slots, engine: engineSlots } = library.table;
    const position = library.logger.mark();
    const list = new CallList();
    device.begin(list);
    list.add("createExecutionContext", engine.method(engineSlots.createExecutionContext), {
      args: [engine.implementation, BigInt(allocationStrategy)],
      expect: "anything",
    });
    await device.run(list);
    const address = list.result(list.length - 1);
    if (address === 0n) {
      throw refusal(
        `Cannot create an execution context for '${name}'`,
        library.logger.since(position),
      );
    }
    const context = new ExecutionContext(address, library.table);
    checkSlots(library, context.object, { what: "execution context", slots });
    const pointer = { parameters: [], result: "u64" } as const;
    const cName = cString(name);
    context.object.bind(slots.setName, { parameters: ["buffer"], result: "void" })(cName);
    const getName = context.object.bind(slots.getName, { parameters: [], result: "pointer" });
    const isRight = context.object.bind(slots.getPImpl, pointer)() === address &&
      context.object.bind(slots.getEngine, pointer)() === engine.address &&
      readCString(getName()) === name;
    if (isRight) return context;
    throw strangeLibrary(library, "an execution context does not give back engine and name");
  }

  /** Deletes objects in this order. */
  async delete(objects: readonly NativeObject[]): Promise<void> {
    if (objects.length === 0) return;
    const list = new CallList();
    this.device.begin(list);
    for (const { destructor, address } of objects) {
      list.add("delete", destructor, { args: [address], expect: "anything" });
    }
    await this.device.run(list);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.delete([this.#object]);
  }
}

/** Every method that is used must be code of the library (native-abi.md §1.8, 2). */
function checkSlots(
  library: TensorRtLibrary,
  object: NativeObject,
  { what, slots }: { readonly what: string; readonly slots: object },
): void {
  if (library.codeRanges.length === 0) return;
  for (const [name, slot] of Object.entries(slots)) {
    if (isCode(library.codeRanges, object.method(slot))) continue;
    throw strangeLibrary(library, `method ${name} (slot ${slot}) of the ${what} is no code of it`);
  }
}

function strangeLibrary({ path, version }: TensorRtLibrary, what: string): TensorRtError {
  return new TensorRtError(
    `Cannot use TensorRT ${version.text} from '${path}', its methods are not where they are ` +
      `expected: ${what}`,
  );
}
