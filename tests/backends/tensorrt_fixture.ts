import { addressOf } from "../../ffi/memory.ts";
import type { DevicePlace } from "../../proto/tensor.ts";
import { identityPlan } from "../native/tensorrt/plan.ts";
import {
  buildStandIns,
  countStandIns,
  type StandInCounts,
  whyNoStandIns,
} from "../native/tensorrt/stand_ins.ts";
import { type OpenedModel, openInstance, type OpenOptions } from "./fixture.ts";

/** Why these tests cannot run here; undefined when they can. */
export const reasonToSkip: string | undefined = whyNoStandIns();

const standIns = reasonToSkip === undefined ? await buildStandIns() : undefined;

/** Like {@linkcode OpenOptions}, with `1/model.plan`, by default an identity. */
export interface TrtOptions extends OpenOptions {
  readonly major?: number;
  readonly plan?: Uint8Array;
}

/** Path of the CUDA runtime. */
export function cudaLibrary(): string {
  return standIns!.cuda;
}

/** Path of a libnvinfer that lacks a symbol. */
export function incompleteLibrary(): string {
  return standIns!.incomplete;
}

/** Opens a plan on the stand-ins. */
export async function openPlan(
  { major = 10, plan = identityPlan(major), ...options }: TrtOptions = {},
): Promise<OpenedModel> {
  return await openInstance("tensorrt", {
    files: { "model.plan": plan },
    placement: { kind: "KIND_GPU", deviceId: 0 },
    ...options,
    settings: {
      library: standIns!.tensorRt(major),
      "cuda-library": standIns!.cuda,
      "self-check": "false",
      ...options.settings,
    },
  });
}

/** Objects of the stand-ins that live, and wrong calls so far. */
export function count(major = 10): StandInCounts {
  return countStandIns(standIns!, major);
}

/** A test that needs the stand-ins. */
export function test(name: string, fn: () => Promise<void>): void {
  Deno.test({ name: `tensorrt: ${name}`, ignore: reasonToSkip !== undefined, fn });
}

/** Runs with settings of the stand-ins. */
export async function withEnv(
  env: Readonly<Record<string, string>>,
  run: () => Promise<void>,
): Promise<void> {
  for (const [name, value] of Object.entries(env)) Deno.env.set(name, value);
  try {
    await run();
  } finally {
    for (const name of Object.keys(env)) Deno.env.delete(name);
  }
}

/** 0, 1, 2, … */
export function ramp(length: number): number[] {
  return Array.from({ length }, (_, index) => index);
}

const TO_DEVICE = 1;
const FROM_DEVICE = 2;

/** Memory of a client on device 0 of the stand-ins. */
export class ClientGpu implements Disposable {
  readonly #library = openCuda();
  readonly #address: bigint;
  readonly #floats: Float32Array<ArrayBuffer>;

  constructor(byteSize: number) {
    const { cudaSetDevice, cudaMalloc } = this.#library.symbols;
    const out = new BigUint64Array(new ArrayBuffer(8));
    if (cudaSetDevice(0) !== 0 || cudaMalloc(out, BigInt(byteSize)) !== 0) {
      throw new Error("there is no memory on the stand-in");
    }
    this.#address = out[0]!;
    this.#floats = new Float32Array(new ArrayBuffer(byteSize));
  }

  /** A part of it. */
  place(offset: number, byteSize: number): DevicePlace {
    return { deviceId: 0, address: this.#address + BigInt(offset), byteSize };
  }

  write(offset: number, values: readonly number[]): void {
    const part = this.#floats.subarray(0, values.length);
    part.set(values);
    this.#copy(this.#address + BigInt(offset), addressOf(part), [4 * values.length, TO_DEVICE]);
  }

  read(offset: number, count: number): number[] {
    const part = this.#floats.subarray(0, count);
    this.#copy(addressOf(part), this.#address + BigInt(offset), [4 * count, FROM_DEVICE]);
    return [...part];
  }

  #copy(to: bigint, from: bigint, [byteSize, kind]: readonly [number, number]): void {
    const { cudaSetDevice, cudaMemcpy } = this.#library.symbols;
    if (cudaSetDevice(0) !== 0 || cudaMemcpy(to, from, BigInt(byteSize), kind) !== 0) {
      throw new Error("a copy of the test failed");
    }
  }

  /** Copies so far to devices, from them, and on them. */
  copies(): number[] {
    return [1, 2, 3].map((kind) => this.#library.symbols.stand_in_copies(kind));
  }

  [Symbol.dispose](): void {
    this.#library.symbols.cudaSetDevice(0);
    this.#library.symbols.cudaFree(this.#address);
    this.#library.close();
  }
}

function openCuda() {
  return Deno.dlopen(standIns!.cuda, {
    cudaSetDevice: { parameters: ["i32"], result: "i32" },
    cudaMalloc: { parameters: ["buffer", "usize"], result: "i32" },
    cudaMemcpy: { parameters: ["u64", "u64", "usize", "i32"], result: "i32" },
    cudaFree: { parameters: ["u64"], result: "i32" },
    stand_in_copies: { parameters: ["i32"], result: "i32" },
  });
}
