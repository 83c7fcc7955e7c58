import { type Datatype, DATATYPES } from "../proto/datatype.ts";
import { DataType } from "../proto/gen/model_config_pb.ts";
import { ELEMENT_TYPE } from "../ffi/onnxruntime/element_type.ts";

const ELEMENT_TYPE_OF: Readonly<Record<Datatype, number>> = {
  BOOL: ELEMENT_TYPE.BOOL,
  UINT8: ELEMENT_TYPE.UINT8,
  UINT16: ELEMENT_TYPE.UINT16,
  UINT32: ELEMENT_TYPE.UINT32,
  UINT64: ELEMENT_TYPE.UINT64,
  INT8: ELEMENT_TYPE.INT8,
  INT16: ELEMENT_TYPE.INT16,
  INT32: ELEMENT_TYPE.INT32,
  INT64: ELEMENT_TYPE.INT64,
  FP16: ELEMENT_TYPE.FLOAT16,
  FP32: ELEMENT_TYPE.FLOAT,
  FP64: ELEMENT_TYPE.DOUBLE,
  BYTES: ELEMENT_TYPE.STRING,
  BF16: ELEMENT_TYPE.BFLOAT16,
};

const DATATYPE_OF: ReadonlyMap<number, Datatype> = new Map(
  Object.values(DATATYPES).map(({ name }) => [ELEMENT_TYPE_OF[name], name]),
);

/** The protocol's name of an element type; undefined where it has none. */
export function datatypeOfElement(elementType: number): Datatype | undefined {
  return DATATYPE_OF.get(elementType);
}

/** The configuration's name of an element type; `TYPE_INVALID` where it has none. */
export function configTypeName(elementType: number): string {
  const datatype = datatypeOfElement(elementType);
  return datatype === undefined ? "TYPE_INVALID" : DATATYPES[datatype].configName;
}

/** The configuration's number of an element type. */
export function configType(elementType: number): DataType {
  const datatype = datatypeOfElement(elementType);
  return datatype === undefined ? DataType.TYPE_INVALID : DATATYPES[datatype].config;
}
