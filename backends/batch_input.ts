import { BatchInput_Kind } from "../proto/gen/model_config_pb.ts";
import type { Tensor } from "../proto/tensor.ts";

/** What to make a generated input from (config.md §9). */
export interface BatchInputRule {
  readonly kind: BatchInput_Kind;
  readonly targetName: string;
  readonly datatype: "INT32" | "FP32";
}

/** Makes the tensor a `batch_input` describes from the source input of every request of the batch, in order. */
export function createBatchInput(rule: BatchInputRule, sources: readonly Tensor[]): Tensor {
  const { shape, values } = batchInputValues(rule.kind, sources);
  const numbers = rule.datatype === "INT32" ? Int32Array.from(values) : Float32Array.from(values);
  return {
    name: rule.targetName,
    datatype: rule.datatype,
    shape,
    data: new Uint8Array(numbers.buffer),
  };
}

function batchInputValues(
  kind: BatchInput_Kind,
  sources: readonly Tensor[],
): { shape: number[]; values: number[] } {
  const counts = sources.map(({ shape }) => shape.reduce((product, dim) => product * dim, 1));
  switch (kind) {
    case BatchInput_Kind.BATCH_ELEMENT_COUNT:
      return vector(counts);
    case BatchInput_Kind.BATCH_ACCUMULATED_ELEMENT_COUNT:
      return vector(runningSum(counts));
    case BatchInput_Kind.BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO:
      return vector([0, ...runningSum(counts)]);
    case BatchInput_Kind.BATCH_MAX_ELEMENT_COUNT_AS_SHAPE:
      return vector(new Array<number>(Math.max(...counts)).fill(0));
    case BatchInput_Kind.BATCH_ITEM_SHAPE: {
      const rows = itemShapes(sources);
      const rank = (sources[0]?.shape.length ?? 1) - 1;
      return { shape: [rows.length, rank], values: rows.flat() };
    }
    case BatchInput_Kind.BATCH_ITEM_SHAPE_FLATTEN:
      return vector(itemShapes(sources).flat());
  }
}

function vector(values: number[]): { shape: number[]; values: number[] } {
  return { shape: [values.length], values };
}

function runningSum(counts: readonly number[]): number[] {
  let sum = 0;
  return counts.map((count) => sum += count);
}

/** One row per batch item: the item's shape without the batch dimension. */
function itemShapes(sources: readonly Tensor[]): number[][] {
  return sources.flatMap(({ shape }) =>
    Array.from({ length: shape[0] ?? 1 }, () => shape.slice(1))
  );
}
