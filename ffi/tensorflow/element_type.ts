/** `TF_DataType` numbers by name. */
export const TF_DATA_TYPE = {
  FLOAT: 1,
  DOUBLE: 2,
  INT32: 3,
  UINT8: 4,
  INT16: 5,
  INT8: 6,
  STRING: 7,
  COMPLEX64: 8,
  INT64: 9,
  BOOL: 10,
  QINT8: 11,
  QUINT8: 12,
  QINT32: 13,
  BFLOAT16: 14,
  QINT16: 15,
  QUINT16: 16,
  UINT16: 17,
  COMPLEX128: 18,
  HALF: 19,
  RESOURCE: 20,
  VARIANT: 21,
  UINT32: 22,
  UINT64: 23,
  FLOAT8_E5M2: 24,
  FLOAT8_E4M3FN: 25,
} as const;

/** Name of a data type number, such as `DT_FLOAT`. */
export function tfDataTypeName(type: number): string {
  const name = Object.entries(TF_DATA_TYPE).find(([, value]) => value === type)?.[0];
  return name === undefined ? `number ${type}` : `DT_${name}`;
}
