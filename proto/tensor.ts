import { type Datatype, DATATYPES } from "./datatype.ts";
import { ServerError } from "./status.ts";

/**
 * A named tensor. `data` holds the elements row-major and little-endian; BYTES elements are a uint32 little-endian
 * length followed by that many bytes (http.md §9.4). `data` is usually a view into a larger buffer at any alignment.
 */
export interface Tensor {
  /** Name of the input or output. */
  readonly name: string;
  /** Datatype of the elements. */
  readonly datatype: Datatype;
  /** Sizes of the dimensions; `[]` = one element. */
  readonly shape: readonly number[];
  /** The elements, see above. Of a tensor with a `place` it is a copy, made when somebody asks for it first. */
  readonly data: Uint8Array;
  /** Where the elements lie, when that is memory of a device. */
  readonly place?: DevicePlace;
}

/** Bytes in the memory of a GPU. */
export interface DevicePlace {
  /** As CUDA counts the GPUs of this machine. */
  readonly deviceId: number;
  /** Of the first byte, as the GPU sees it. */
  readonly address: bigint;
  /** Bytes from there on. */
  readonly byteSize: number;
}

/**
 * A tensor whose elements lie on a device. `read` copies them to this machine; it is called once, by the first who looks
 * at `data`, and what it throws goes to them.
 */
export function createDeviceTensor(
  { name, datatype, shape }: Pick<Tensor, "name" | "datatype" | "shape">,
  place: DevicePlace,
  read: () => Uint8Array,
): Tensor {
  let copy: Uint8Array | undefined;
  return {
    name,
    datatype,
    shape,
    place,
    // A property of its own: spreads and structured clones see the bytes as well.
    get data() {
      return copy ??= read();
    },
  };
}

/** The same tensor in another shape; its bytes are not touched. */
export function withShape(tensor: Tensor, shape: readonly number[]): Tensor {
  const { name, datatype, place } = tensor;
  if (place === undefined) return { name, datatype, shape, data: tensor.data };
  return createDeviceTensor({ name, datatype, shape }, place, () => tensor.data);
}

/** Bytes of the elements, without looking at them. */
export function byteSizeOf(tensor: Tensor): number {
  return tensor.place === undefined ? tensor.data.byteLength : tensor.place.byteSize;
}

/** Largest element count or byte size we accept: exact in a double, far beyond any memory. */
export const MAX_SIZE = Number.MAX_SAFE_INTEGER;

/**
 * Number of elements of a shape; 1 for `[]`.
 * @throws ServerError INVALID_ARG when a dimension is negative or the product is not a safe integer.
 */
export function elementCount(shape: readonly number[], what = "tensor"): number {
  let count = 1;
  let overflow = false;
  for (const dim of shape) {
    if (!Number.isSafeInteger(dim) || dim < 0) {
      throw new ServerError(
        "INVALID_ARG",
        `invalid shape for ${what}: shape ${
          formatShape(shape)
        } contains one or more invalid dimensions`,
      );
    }
    count *= dim;
    if (count > MAX_SIZE) overflow = true;
  }
  // A later zero makes the product zero, whatever came before it.
  if (overflow && !shape.includes(0)) {
    throw new ServerError(
      "INVALID_ARG",
      `invalid shape for ${what}: shape ${
        formatShape(shape)
      } causes total element count to exceed ` +
        `maximum size of 9223372036854775807`,
    );
  }
  return shape.includes(0) ? 0 : count;
}

/** Byte size of a fixed-size datatype and shape; undefined for BYTES. Throws like {@linkcode elementCount}. */
export function tensorByteSize(
  datatype: Datatype,
  shape: readonly number[],
  what = "tensor",
): number | undefined {
  const size = DATATYPES[datatype].byteSize;
  const count = elementCount(shape, what);
  if (size === 0) return undefined;
  if (count > MAX_SIZE / size) {
    throw new ServerError(
      "INVALID_ARG",
      `invalid shape for ${what}: shape ${formatShape(shape)} causes total byte size to exceed ` +
        `maximum size of 9223372036854775807`,
    );
  }
  return count * size;
}

/** `[-1,16]`, the form of shapes in every message. */
export function formatShape(shape: readonly (number | bigint)[]): string {
  return `[${shape.join(",")}]`;
}
