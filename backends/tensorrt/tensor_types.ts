import { type Datatype, DATATYPES } from "../../proto/datatype.ts";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { TRT_TYPE } from "../../ffi/tensorrt/signature.ts";

// The protocol has no 8-bit floats: their bytes pass as they are.
const DATATYPE_OF: ReadonlyMap<number, Datatype> = new Map<number, Datatype>([
  [TRT_TYPE.FLOAT, "FP32"],
  [TRT_TYPE.HALF, "FP16"],
  [TRT_TYPE.INT8, "INT8"],
  [TRT_TYPE.INT32, "INT32"],
  [TRT_TYPE.BOOL, "BOOL"],
  [TRT_TYPE.UINT8, "UINT8"],
  [TRT_TYPE.FP8, "UINT8"],
  [TRT_TYPE.BF16, "BF16"],
  [TRT_TYPE.INT64, "INT64"],
  [TRT_TYPE.E8M0, "UINT8"],
]);

/** The protocol's name of an engine's data type; undefined where it has none (packed 4-bit types). */
export function datatypeOfTrt(type: number): Datatype | undefined {
  return DATATYPE_OF.get(type);
}

/** The configuration's number of an engine's data type; `TYPE_INVALID` where it has none. */
export function configTypeOfTrt(type: number): DataType {
  const datatype = datatypeOfTrt(type);
  return datatype === undefined ? DataType.TYPE_INVALID : DATATYPES[datatype].config;
}
