import { NativeHandle, type NativePointer } from "../handle.ts";
import { addressOf, copyMemory, cString, readCString, whileHolding } from "../memory.ts";

const SYMBOLS = {
  // const char* nereid_torch_version()
  nereid_torch_version: { parameters: [], result: "pointer" },
  // int32_t nereid_torch_threads(int32_t intra, int32_t inter, char* error, size_t error_size)
  nereid_torch_threads: { parameters: ["i32", "i32", "buffer", "usize"], result: "i32" },
  // void nereid_torch_jit(int32_t executor, int32_t profiling, int32_t fuser)
  nereid_torch_jit: { parameters: ["i32", "i32", "i32"], result: "void" },
  // void* nereid_torch_load(const char* path, char* error, size_t error_size)
  nereid_torch_load: {
    parameters: ["buffer", "buffer", "usize"],
    result: "pointer",
    nonblocking: true,
  },
  // const char* nereid_torch_signature(void* model)
  nereid_torch_signature: { parameters: ["pointer"], result: "pointer" },
  // void nereid_torch_free(void* model)
  nereid_torch_free: { parameters: ["pointer"], result: "void" },
  // void* nereid_torch_forward(void* model, int64_t count, const Input* inputs, int32_t flags, char* error, size_t size)
  nereid_torch_forward: {
    parameters: ["pointer", "i64", "buffer", "i32", "buffer", "usize"],
    result: "pointer",
    nonblocking: true,
  },
  // int64_t nereid_torch_output_count(void* result)
  nereid_torch_output_count: { parameters: ["pointer"], result: "i64" },
  // const Output* nereid_torch_outputs(void* result)
  nereid_torch_outputs: { parameters: ["pointer"], result: "pointer" },
  // void nereid_torch_result_free(void* result)
  nereid_torch_result_free: { parameters: ["pointer"], result: "void" },
} as const satisfies Deno.ForeignLibraryInterface;

type TorchCalls = Deno.DynamicLibrary<typeof SYMBOLS>["symbols"];

const ERROR_BYTE_SIZE = 4096;
const INPUT_WORDS = 8;
const OUTPUT_BYTE_SIZE = 56;

/** `ScalarType` of libtorch by name. */
export const SCALAR_TYPE = {
  uint8: 0,
  int8: 1,
  int16: 2,
  int32: 3,
  int64: 4,
  float16: 5,
  float32: 6,
  float64: 7,
  bool: 11,
  bfloat16: 15,
} as const;

/** A failure in libtorch, in its own words. */
export class TorchError extends Error {
  override readonly name = "TorchError";
}

/** An argument of `forward`. */
export interface TorchArgument {
  readonly name: string;
  /** As Python annotates it, such as `Tensor`, `List[str]`, `Dict[str, Tensor]`. */
  readonly type: string;
  readonly isOptional: boolean;
}

/** A value for `forward`; `strings` are BYTES elements with their lengths in front. */
export interface TorchInput {
  readonly name: string;
  readonly kind: "tensor" | "strings";
  readonly scalarType: number;
  readonly shape: readonly number[];
  readonly data: Uint8Array<ArrayBuffer>;
}

/** A value that `forward` returned; `name` is "" unless it is of a dictionary. */
export interface TorchOutput {
  readonly name: string;
  readonly kind: "tensor" | "strings";
  readonly scalarType: number;
  readonly shape: readonly number[];
  readonly data: Uint8Array<ArrayBuffer>;
}

/** How a run is done. */
export interface TorchRunOptions {
  readonly inferenceMode: boolean;
  readonly optimizedExecution: boolean;
  readonly inputsAreDict: boolean;
}

/** The shim with libtorch behind it; both stay for the life of the process. */
export class TorchRuntime {
  readonly calls: TorchCalls;
  readonly version: string;

  /** @throws Error when the shim cannot be loaded. */
  constructor(shimPath: string) {
    this.calls = Deno.dlopen(shimPath, SYMBOLS).symbols;
    this.version = readCString(this.calls.nereid_torch_version());
  }

  /** Threads of the whole process; 0 = as they are. @throws TorchError */
  setThreads({ intra, inter }: { readonly intra: number; readonly inter: number }): void {
    const error = new Uint8Array(new ArrayBuffer(ERROR_BYTE_SIZE));
    const status = this.calls.nereid_torch_threads(intra, inter, error, BigInt(ERROR_BYTE_SIZE));
    if (status !== 0) throw failureIn(error);
  }

  /** Switches of the whole process; undefined = as they are. */
  setJit({ executor, profiling, fuser }: {
    readonly executor: boolean | undefined;
    readonly profiling: boolean | undefined;
    readonly fuser: boolean | undefined;
  }): void {
    const code = (flag: boolean | undefined) => flag === undefined ? -1 : Number(flag);
    this.calls.nereid_torch_jit(code(executor), code(profiling), code(fuser));
  }
}

/** A loaded TorchScript model. */
export class TorchModule extends NativeHandle {
  readonly #runtime: TorchRuntime;
  readonly inputs: readonly TorchArgument[];
  /** What `forward` returns, as Python annotates it. */
  readonly returns: string;

  private constructor(runtime: TorchRuntime, pointer: NativePointer) {
    super(pointer, (model) => runtime.calls.nereid_torch_free(model));
    this.#runtime = runtime;
    const rows = readCString(runtime.calls.nereid_torch_signature(pointer)).split("\n");
    this.returns = rows.pop()!.replace("\t", "");
    this.inputs = rows.map((row) => {
      const [name, type, optional] = row.split("\t");
      return { name: name!, type: type!, isOptional: optional === "optional" };
    });
  }

  /** Loads a file on the blocking pool. @throws TorchError */
  static async open(runtime: TorchRuntime, path: string): Promise<TorchModule> {
    const { calls } = runtime;
    const file = cString(path);
    const error = new Uint8Array(new ArrayBuffer(ERROR_BYTE_SIZE));
    const pointer = await whileHolding(
      [file, error],
      () => calls.nereid_torch_load(file, error, BigInt(ERROR_BYTE_SIZE)),
    );
    if (pointer === null) throw failureIn(error);
    return new TorchModule(runtime, pointer);
  }

  /** Runs on the blocking pool; what it returns is copied. @throws TorchError */
  async forward(inputs: readonly TorchInput[], options: TorchRunOptions): Promise<TorchOutput[]> {
    const { calls } = this.#runtime;
    const { words, kept } = packInputs(inputs);
    const error = new Uint8Array(new ArrayBuffer(ERROR_BYTE_SIZE));
    const flags = (options.inferenceMode ? 1 : 0) | (options.optimizedExecution ? 0 : 2) |
      (options.inputsAreDict ? 4 : 0);
    const { pointer } = this;
    const count = BigInt(inputs.length);
    const size = BigInt(ERROR_BYTE_SIZE);
    const result = await whileHolding(
      [this, words, error, kept],
      () => calls.nereid_torch_forward(pointer, count, words, flags, error, size),
    );
    if (result === null) throw failureIn(error);
    try {
      return readOutputs(calls, result);
    } finally {
      calls.nereid_torch_result_free(result);
    }
  }
}

function packInputs(inputs: readonly TorchInput[]) {
  const words = new BigInt64Array(new ArrayBuffer(8 * INPUT_WORDS * Math.max(inputs.length, 1)));
  const kept: object[] = [];
  inputs.forEach(({ name, kind, scalarType, shape, data }, index) => {
    const dims = new BigInt64Array(new ArrayBuffer(8 * Math.max(shape.length, 1)));
    shape.forEach((dim, axis) => dims[axis] = BigInt(dim));
    const text = cString(name);
    kept.push(dims, text, data);
    words.set([
      ...[BigInt(kind === "tensor" ? 0 : 1), BigInt(scalarType), BigInt(shape.length)],
      ...[addressOf(dims), addressOf(data), BigInt(data.byteLength), addressOf(text), 0n],
    ], index * INPUT_WORDS);
  });
  return { words, kept };
}

function readOutputs(calls: TorchCalls, result: NativePointer): TorchOutput[] {
  const count = Number(calls.nereid_torch_output_count(result));
  const start = calls.nereid_torch_outputs(result);
  if (start === null) return [];
  const view = new Deno.UnsafePointerView(start);
  return Array.from({ length: count }, (_, index) => {
    const at = index * OUTPUT_BYTE_SIZE;
    const rank = Number(view.getBigInt64(at + 16));
    const dims = view.getPointer(at + 24);
    const sizes = dims === null ? undefined : new Deno.UnsafePointerView(dims);
    const data = view.getPointer(at + 32);
    const byteSize = Number(view.getBigInt64(at + 40));
    return {
      name: readCString(view.getPointer(at + 48)),
      kind: view.getBigInt64(at) === 0n ? "tensor" : "strings",
      scalarType: Number(view.getBigInt64(at + 8)),
      shape: Array.from({ length: rank }, (_, axis) => Number(sizes!.getBigInt64(axis * 8))),
      data: data === null || byteSize === 0 ? new Uint8Array(0) : copyMemory(data, byteSize),
    };
  });
}

/** The first lines: behind them libtorch lists its own stack. */
function failureIn(error: Uint8Array): TorchError {
  const text = new TextDecoder().decode(error.subarray(0, error.indexOf(0)));
  const lines = text.split("\n").map((line) => line.trim());
  const end = lines.findIndex((line) => /^(?:Exception raised from|frame #0)/.test(line));
  return new TorchError(
    (end < 0 ? lines : lines.slice(0, end)).filter((line) => line !== "").join(" ").slice(0, 2000),
  );
}
