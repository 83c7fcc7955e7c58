import { addressOfPointer } from "../memory.ts";
import { NativeHandle, type NativePointer } from "../handle.ts";
import type { OrtEnvironment } from "./environment.ts";
import { createTensorOver, viewTensor } from "./value.ts";

/** An `OrtValue` over bytes of ours, kept for several runs. The bytes live as long as the value. */
export class OrtTensor extends NativeHandle {
  readonly data: Uint8Array<ArrayBuffer>;
  readonly shape: readonly number[];
  /** Address of the `OrtValue`, for the pointer arrays of runs. */
  readonly address: bigint;

  private constructor(
    environment: OrtEnvironment,
    pointer: NativePointer,
    parts: { readonly data: Uint8Array<ArrayBuffer>; readonly shape: readonly number[] },
  ) {
    const { calls } = environment;
    super(pointer, (value) => calls.ReleaseValue(value));
    this.data = parts.data;
    this.shape = parts.shape;
    this.address = addressOfPointer(pointer);
  }

  /** @throws OrtError when size and shape do not fit. */
  static over(
    environment: OrtEnvironment,
    data: Uint8Array<ArrayBuffer>,
    options: { readonly shape: readonly number[]; readonly elementType: number },
  ): OrtTensor {
    const shape = [...options.shape];
    const pointer = createTensorOver(environment, data, options);
    return new OrtTensor(environment, pointer, { data, shape });
  }

  /** True when the value is over so many bytes in this shape. */
  fits(byteSize: number, shape: readonly number[]): boolean {
    if (this.data.byteLength !== byteSize || this.shape.length !== shape.length) return false;
    for (let index = 0; index < shape.length; index++) {
      if (this.shape[index] !== shape[index]) return false;
    }
    return true;
  }
}

/**
 * Memory of the runtime on loan: a buffer over the bytes of an `OrtValue`. `release` frees the value and detaches the
 * buffer, so that a late reader finds it empty; a buffer that is dropped without that frees the value when collected.
 */
export interface TensorLoan {
  readonly buffer: ArrayBuffer;
  release(): void;
}

const forgotten = new FinalizationRegistry<() => void>((free) => free());

/** Lends the bytes of a tensor of fixed-size elements (at least one) and takes over the value. */
export function lendTensor(
  environment: OrtEnvironment,
  value: NativePointer,
  byteSize: number,
): TensorLoan {
  const { calls } = environment;
  const free = () => calls.ReleaseValue(value);
  const token = {};
  const buffer = viewTensor(environment, value, byteSize);
  forgotten.register(buffer, free, token);
  let isReleased = false;
  return {
    buffer,
    release() {
      if (isReleased) return;
      isReleased = true;
      forgotten.unregister(token);
      // Moves the memory to a buffer nobody has; the one handed out becomes empty.
      if (!buffer.detached) buffer.transfer();
      free();
    },
  };
}
