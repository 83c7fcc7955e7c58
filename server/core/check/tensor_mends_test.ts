import { deepEqual } from "node:assert/strict";
import { DataType } from "../../../proto/gen/model_config_pb.ts";
import { parseModelConfig } from "../../../proto/model_config.ts";
import type { DescribedTensor } from "./model_description.ts";
import { mendTensors } from "./tensor_mends.ts";

function described(name: string, dims: readonly bigint[] = [4n]): DescribedTensor {
  return { name, dataType: DataType.TYPE_FP32, dims, isScalar: false };
}

/** What would be changed for a fault of `path` of a model with these tensors. */
function mends(
  text: string,
  path: string,
  model: {
    readonly inputs?: readonly DescribedTensor[];
    readonly outputs?: readonly DescribedTensor[];
  },
): unknown {
  const { config } = parseModelConfig(text, "config.pbtxt");
  const description = { inputs: [], outputs: [], ...model };
  const [issue] = mendTensors([{ path, message: "" }], config, description);
  const mend = issue?.mend;
  return mend !== undefined && "fields" in mend
    ? Object.fromEntries(mend.fields.map(({ path, value }) => [path, value]))
    : {};
}

Deno.test("mendTensors() takes names, types and dims from the model", () => {
  const inputs = [described("X")];
  const of = (text: string) => mends(`input { ${text} }`, "input[0]", { inputs });
  deepEqual(of(`name: "X" data_type: TYPE_INT8 dims: 4`), { "input[0].data_type": "TYPE_FP32" });
  deepEqual(of(`name: "X" dims: 4`), { "input[0].data_type": "TYPE_FP32" });
  deepEqual(of(`name: "X" data_type: TYPE_FP32 dims: [ 1, 4 ]`), { "input[0].dims": "[ 4 ]" });
  deepEqual(of(`name: "Z" data_type: TYPE_FP32 dims: 4`), { "input[0].name": '"X"' });
  deepEqual(of(`name: "Z" data_type: TYPE_INT8 dims: 4`), {}, "nothing speaks for this tensor");
  deepEqual(of(`name: "X" data_type: TYPE_FP32 dims: 4`), {});
});

Deno.test("mendTensors() chooses among several tensors only by a near name", () => {
  const inputs = [described("INPUT_IDS"), described("ATTENTION_MASK")];
  const of = (name: string) =>
    mends(`input { name: "${name}" data_type: TYPE_FP32 dims: 4 }`, "input[0]", { inputs });
  deepEqual(of("input_ids"), { "input[0].name": '"INPUT_IDS"' });
  deepEqual(of("ATENTION_MASK"), { "input[0].name": '"ATTENTION_MASK"' });
  deepEqual(of("tokens"), {});
});

Deno.test("mendTensors() keeps fixed dims of inputs where the model leaves them free", () => {
  const tensors = [described("X", [-1n, 4n])];
  const text = (side: string) => `${side} { name: "X" data_type: TYPE_FP32 dims: [ 7, 5 ] }`;
  deepEqual(mends(text("input"), "input[0].dims", { inputs: tensors }), {
    "input[0].dims": "[ 7, 4 ]",
  });
});

Deno.test("mendTensors() adds inputs that are not listed, when all others are known", () => {
  const inputs = [described("A"), described("B", [-1n, 2n])];
  const list = (name: string) => `input { name: "${name}" data_type: TYPE_FP32 dims: 4 }`;
  deepEqual(mends(list("A"), "input", { inputs }), {
    "input[1]": '{ name: "B" data_type: TYPE_FP32 dims: [ -1, 2 ] }',
  });
  deepEqual(mends(list("unlike"), "input", { inputs }), {});
  const sequence = `${list("A")} sequence_batching { }`;
  deepEqual(mends(sequence, "input", { inputs }), {}, "B may be a control or a state");
});
