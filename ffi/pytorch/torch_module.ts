import { NativeHandle, type NativePointer } from "../handle.ts";
import { addressOf, copyMemory, cString, readCString, whileHolding } from "../memory.ts";
import { torchErrorIn } from "./torch_error.ts";
import type { TorchRuntime } from "./torch_runtime.ts";
import { TORCH_ERROR_BYTE_SIZE, type TorchCalls } from "./torch_symbols.ts";

const INPUT_WORDS = 8;
const OUTPUT_BYTE_SIZE = 56;
const FORMAT = { script: 0, package: 1 } as const;
const PLACE = { cpu: -1, saved: -2 } as const;

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

/** An argument of `forward`. */
export interface TorchArgument {
  readonly name: string;
  /** As Python annotates it, such as `Tensor`, `List[str]`, `Dict[str, Tensor]`. */
  readonly type: string;
  /** It has a default. */
  readonly isOptional: boolean;
}

/** What a TorchScript module tells of `forward`. */
export interface ScriptSignature {
  readonly inputs: readonly TorchArgument[];
  /** What it returns, as Python annotates it. */
  readonly returns: string;
}

/** What an AOTInductor package tells: trees of inputs and outputs as JSON, and the device it was compiled for. */
export interface PackageSignature {
  readonly inputSpec: string;
  readonly outputSpec: string;
  readonly device: string;
}

/** A value for `forward` or from it; `strings` are BYTES elements with their lengths in front. */
export interface TorchValue {
  /** Of an input: the argument, or the key. Of an output: the key, "" unless it is of a dictionary. */
  readonly name: string;
  readonly kind: "tensor" | "strings";
  readonly scalarType: number;
  readonly shape: readonly number[];
  readonly data: Uint8Array<ArrayBuffer>;
}

/** What to load, and onto what: a CUDA device, the CPU, or where it was when it was saved. */
export interface TorchFile {
  readonly path: string;
  readonly format: keyof typeof FORMAT;
  readonly device: number | keyof typeof PLACE;
  /** Runs of a package at the same time. */
  readonly runners: number;
}

/** A loaded model. */
export class TorchModule extends NativeHandle {
  readonly #runtime: TorchRuntime;

  private constructor(runtime: TorchRuntime, pointer: NativePointer) {
    super(pointer, (model) => runtime.calls.nereid_torch_free(model));
    this.#runtime = runtime;
  }

  /** Loads a file on the blocking pool. @throws TorchError */
  static async open(runtime: TorchRuntime, file: TorchFile): Promise<TorchModule> {
    const { calls } = runtime;
    const path = cString(file.path);
    const device = typeof file.device === "number" ? file.device : PLACE[file.device];
    const error = new Uint8Array(new ArrayBuffer(TORCH_ERROR_BYTE_SIZE));
    const size = BigInt(TORCH_ERROR_BYTE_SIZE);
    const format = FORMAT[file.format];
    const pointer = await whileHolding(
      [path, error],
      () => calls.nereid_torch_load(path, format, device, file.runners, error, size),
    );
    if (pointer === null) throw torchErrorIn(error);
    return new TorchModule(runtime, pointer);
  }

  /** Of a TorchScript module. */
  scriptSignature(): ScriptSignature {
    const rows = this.#signature();
    const returns = rows.pop()!.replace("\t", "");
    const inputs = rows.map((row) => {
      const [name, type, optional] = row.split("\t");
      return { name: name!, type: type!, isOptional: optional === "optional" };
    });
    return { inputs, returns };
  }

  /** Of an AOTInductor package. */
  packageSignature(): PackageSignature {
    const [inputSpec, outputSpec, device] = this.#signature();
    return { inputSpec: inputSpec ?? "", outputSpec: outputSpec ?? "", device: device ?? "" };
  }

  #signature(): string[] {
    return readCString(this.#runtime.calls.nereid_torch_signature(this.pointer)).split("\n");
  }

  /** Runs on the blocking pool, with switches of run_switches.ts; what it returns is copied. @throws TorchError */
  async forward(inputs: readonly TorchValue[], switches: number): Promise<TorchValue[]> {
    const { calls } = this.#runtime;
    const { words, kept } = packInputs(inputs);
    const error = new Uint8Array(new ArrayBuffer(TORCH_ERROR_BYTE_SIZE));
    const { pointer } = this;
    const count = BigInt(inputs.length);
    const size = BigInt(TORCH_ERROR_BYTE_SIZE);
    const result = await whileHolding(
      [this, words, error, kept],
      () => calls.nereid_torch_forward(pointer, count, words, switches, error, size),
    );
    if (result === null) throw torchErrorIn(error);
    try {
      return readOutputs(calls, result);
    } finally {
      calls.nereid_torch_result_free(result);
    }
  }
}

function packInputs(inputs: readonly TorchValue[]) {
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

function readOutputs(calls: TorchCalls, result: NativePointer): TorchValue[] {
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
