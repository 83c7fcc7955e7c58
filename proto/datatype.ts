import { DataType } from "./gen/model_config_pb.ts";

/** Datatype names of the inference protocol (http.md §4). */
export type Datatype =
  | "BOOL"
  | "UINT8"
  | "UINT16"
  | "UINT32"
  | "UINT64"
  | "INT8"
  | "INT16"
  | "INT32"
  | "INT64"
  | "FP16"
  | "FP32"
  | "FP64"
  | "BYTES"
  | "BF16";

/** One row: the protocol's name, the configuration's enum value and the bytes of one element (0 = variable). */
export interface DatatypeRow {
  readonly name: Datatype;
  readonly config: DataType;
  readonly configName: string;
  readonly byteSize: number;
}

function row(name: Datatype, config: DataType, byteSize: number): DatatypeRow {
  return { name, config, configName: DataType[config], byteSize };
}

/** Every datatype of the protocol, by name. */
export const DATATYPES: Readonly<Record<Datatype, DatatypeRow>> = {
  BOOL: row("BOOL", DataType.TYPE_BOOL, 1),
  UINT8: row("UINT8", DataType.TYPE_UINT8, 1),
  UINT16: row("UINT16", DataType.TYPE_UINT16, 2),
  UINT32: row("UINT32", DataType.TYPE_UINT32, 4),
  UINT64: row("UINT64", DataType.TYPE_UINT64, 8),
  INT8: row("INT8", DataType.TYPE_INT8, 1),
  INT16: row("INT16", DataType.TYPE_INT16, 2),
  INT32: row("INT32", DataType.TYPE_INT32, 4),
  INT64: row("INT64", DataType.TYPE_INT64, 8),
  FP16: row("FP16", DataType.TYPE_FP16, 2),
  FP32: row("FP32", DataType.TYPE_FP32, 4),
  FP64: row("FP64", DataType.TYPE_FP64, 8),
  BYTES: row("BYTES", DataType.TYPE_STRING, 0),
  BF16: row("BF16", DataType.TYPE_BF16, 2),
};

const BY_CONFIG: ReadonlyMap<DataType, Datatype> = new Map(
  Object.values(DATATYPES).map((entry) => [entry.config, entry.name]),
);

/** True for a name of the protocol's datatype table. */
export function isDatatype(name: string): name is Datatype {
  return Object.hasOwn(DATATYPES, name);
}

/** The protocol's name of a configuration datatype; undefined for TYPE_INVALID and unknown numbers. */
export function datatypeOfConfig(config: DataType): Datatype | undefined {
  return BY_CONFIG.get(config);
}
