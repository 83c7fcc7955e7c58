/** `ONNXTensorElementDataType` numbers by name. */
export const ELEMENT_TYPE = {
  FLOAT: 1,
  UINT8: 2,
  INT8: 3,
  UINT16: 4,
  INT16: 5,
  INT32: 6,
  INT64: 7,
  STRING: 8,
  BOOL: 9,
  FLOAT16: 10,
  DOUBLE: 11,
  UINT32: 12,
  UINT64: 13,
  COMPLEX64: 14,
  COMPLEX128: 15,
  BFLOAT16: 16,
  FLOAT8E4M3FN: 17,
  FLOAT8E4M3FNUZ: 18,
  FLOAT8E5M2: 19,
  FLOAT8E5M2FNUZ: 20,
  UINT4: 21,
  INT4: 22,
  FLOAT4E2M1: 23,
  UINT2: 24,
  INT2: 25,
  FLOAT8E8M0: 26,
} as const;

/** `ONNXType` numbers by name. */
export const ONNX_TYPE = {
  UNKNOWN: 0,
  TENSOR: 1,
  SEQUENCE: 2,
  MAP: 3,
  OPAQUE: 4,
  SPARSETENSOR: 5,
  OPTIONAL: 6,
} as const;

/** Name of an element type number, such as `FLOAT`. */
export function elementTypeName(type: number): string {
  return nameOf(ELEMENT_TYPE, type);
}

/** Name of an ONNX type number as the C header has it, such as `ONNX_TYPE_SEQUENCE`. */
export function onnxTypeName(type: number): string {
  return `ONNX_TYPE_${nameOf(ONNX_TYPE, type)}`;
}

function nameOf(table: Readonly<Record<string, number>>, value: number): string {
  return Object.keys(table).find((name) => table[name] === value) ?? `number ${value}`;
}
