/** An input or output of a plan; dims and profile shapes with the batch dimension. */
export interface PlanTensor {
  readonly name: string;
  /** `nvinfer1::DataType` by name. */
  readonly type: string;
  readonly dims: readonly number[];
  readonly isShape?: boolean;
  /** Packed format: number of the format, packed dimension, elements in a pack. */
  readonly vector?: readonly [number, number, number];
  /** Shapes min, opt, max of each profile. */
  readonly profiles?:
    readonly (readonly [readonly number[], readonly number[], readonly number[]])[];
}

/** A plan of the stand-in. */
export interface PlanInit {
  /** Major version of TensorRT it is for. */
  readonly version: number;
  readonly name?: string;
  /** Compute capability of the device it was made on. */
  readonly capability?: string;
  readonly inputs: readonly PlanTensor[];
  readonly outputs: readonly PlanTensor[];
  /** Such as `identity x y`, `add a b y`, `nonzero x y`, `shapeof x y`, `fill s y`, `sleep 5`. */
  readonly ops: readonly string[];
}

/** Writes a plan in the stand-in's text format. */
export function buildPlan(init: PlanInit): Uint8Array<ArrayBuffer> {
  const { version, name = "plan", capability, inputs, outputs, ops } = init;
  const profileCount = Math.max(1, ...inputs.map(({ profiles }) => profiles?.length ?? 0));
  const lines = [
    "ftrt",
    `version ${version}`,
    `name ${name}`,
    `profiles ${profileCount}`,
    ...capability === undefined ? [] : [`capability ${capability}`],
    ...inputs.map((tensor) => tensorLine("input", tensor)),
    ...outputs.map((tensor) => tensorLine("output", tensor)),
    ...inputs.flatMap((tensor) =>
      (tensor.profiles ?? []).map((shapes, index) =>
        `profile ${index} ${tensor.name} ${shapes.map(shapeText).join(" ")}`
      )
    ),
    ...ops.map((op) => `op ${op}`),
    "end",
  ];
  return new TextEncoder().encode(lines.join("\n") + "\n");
}

function tensorLine(kind: string, { name, type, dims, isShape, vector }: PlanTensor): string {
  const options = [
    ...isShape ? ["shape"] : [],
    ...vector === undefined ? [] : [`vector ${vector.join(" ")}`],
  ];
  return [kind, name, type, shapeText(dims), ...options].join(" ");
}

function shapeText(shape: readonly number[]): string {
  return shape.length === 0 ? "scalar" : shape.join(",");
}

/** OUTPUT0 = INPUT0 of `dims`, for batches of 1 to `maxRows`. */
export function identityPlan(
  version: number,
  { type = "FLOAT", dims = [4], maxRows = 8, ...rest }: {
    readonly type?: string;
    readonly dims?: readonly number[];
    readonly maxRows?: number;
    readonly capability?: string;
  } = {},
): Uint8Array<ArrayBuffer> {
  const shape = (rows: number) => [rows, ...dims];
  return buildPlan({
    version,
    inputs: [{
      name: "INPUT0",
      type,
      dims: shape(-1),
      profiles: [[shape(1), shape(maxRows), shape(maxRows)]],
    }],
    outputs: [{ name: "OUTPUT0", type, dims: shape(-1) }],
    ops: ["identity INPUT0 OUTPUT0"],
    ...rest,
  });
}
