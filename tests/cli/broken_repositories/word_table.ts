import { type BrokenCase, IO } from "./broken_case.ts";

const HEAD = `backend: "identity"\n`;

function tensors(input: string, output = input): string {
  return `${HEAD}input { name: "X" ${input} }\noutput { name: "Y" ${output} }\n`;
}

/** Words that the schema does not have, and values of the wrong kind. */
export const WORD_CASES: readonly BrokenCase[] = [
  {
    name: "field_typo",
    config: `${HEAD}max_batchsize: 8\n${IO}`,
    says: "did you mean max_batch_size?",
    at: "2:1",
    mended: true,
  },
  {
    name: "field_in_camel_case",
    config: `${HEAD}maxBatchSize: 8\n${IO}`,
    says: "did you mean max_batch_size?",
    at: "2:1",
    mended: true,
  },
  {
    name: "field_with_dashes",
    config: `${HEAD}max-batch-size: 8\n${IO}`,
    says: "no field max-batch-size",
    at: "2:1",
    mended: true,
  },
  {
    name: "field_in_capitals",
    config: `${HEAD}MAX_BATCH_SIZE: 8\n${IO}`,
    says: "did you mean max_batch_size?",
    at: "2:1",
    mended: true,
  },
  {
    name: "field_in_plural",
    config: `${HEAD}${IO}instance_groups [ { count: 1 } ]\n`,
    says: "did you mean instance_group?",
    at: "4:1",
    mended: true,
  },
  {
    name: "field_datatype",
    config: tensors("datatype: TYPE_FP32 dims: [ 4 ]"),
    says: "did you mean data_type?",
    at: "2:19",
    mended: true,
  },
  {
    name: "field_dtype",
    config: tensors("dtype: TYPE_FP32 dims: [ 4 ]"),
    says: "did you mean data_type?",
    at: "2:19",
    mended: true,
  },
  {
    name: "field_dim",
    config: tensors("data_type: TYPE_FP32 dim: [ 4 ]"),
    says: "did you mean dims?",
    at: "2:40",
    mended: true,
  },
  {
    name: "field_inputs",
    config: `${HEAD}${IO.replace("input", "inputs").replace("output", "outputs")}`,
    says: "did you mean input?",
    at: "2:1",
    mended: true,
  },
  {
    name: "field_preferred_sizes",
    config: `${HEAD}max_batch_size: 8\n${IO}dynamic_batching { prefered_batch_size: [ 4 ] }\n`,
    says: "did you mean preferred_batch_size?",
    at: "5:20",
    mended: true,
  },
  {
    name: "type_without_prefix",
    config: tensors("data_type: FP32 dims: [ 4 ]"),
    says: "did you mean TYPE_FP32?",
    at: "2:30",
    mended: true,
  },
  {
    name: "type_of_numpy",
    config: tensors("data_type: float32 dims: [ 4 ]"),
    says: "did you mean TYPE_FP32?",
    at: "2:30",
    mended: true,
  },
  {
    name: "type_float32",
    config: tensors("data_type: TYPE_FLOAT32 dims: [ 4 ]"),
    says: "did you mean TYPE_FP32?",
    at: "2:30",
    mended: true,
  },
  {
    name: "type_in_small_letters",
    config: tensors("data_type: type_int64 dims: [ 4 ]"),
    says: "did you mean TYPE_INT64?",
    at: "2:30",
    mended: true,
  },
  {
    name: "type_in_quotes",
    config: tensors(`data_type: "TYPE_FP32" dims: [ 4 ]`),
    says: "without quotes",
    at: "2:30",
    mended: true,
  },
  {
    name: "type_bytes",
    config: tensors("data_type: TYPE_BYTES dims: [ 4 ]"),
    says: "did you mean TYPE_STRING?",
    at: "2:30",
    mended: true,
  },
  {
    name: "type_unclear",
    config: tensors("data_type: TYPE_INT dims: [ 4 ]"),
    says: "a value of DataType expected",
    at: "2:30",
    mended: false,
  },
  {
    name: "kind_without_prefix",
    config: `${HEAD}${IO}instance_group { kind: CPU }\n`,
    says: "did you mean KIND_CPU?",
    at: "4:24",
    mended: true,
  },
  {
    name: "kind_in_small_letters",
    config: `${HEAD}${IO}instance_group { kind: kind_cpu }\n`,
    says: "did you mean KIND_CPU?",
    at: "4:24",
    mended: true,
  },
  {
    name: "bool_in_capitals",
    config: `${HEAD}${IO}model_transaction_policy { decoupled: FALSE }\n`,
    says: "true or false expected",
    at: "4:39",
    mended: true,
  },
  {
    name: "bool_as_word",
    config: `${HEAD}${IO}response_cache { enable: no }\n`,
    says: "true or false expected",
    at: "4:26",
    mended: true,
  },
  {
    name: "bool_in_quotes",
    config: `${HEAD}${IO}response_cache { enable: "false" }\n`,
    says: "true or false expected",
    at: "4:26",
    mended: true,
  },
  {
    name: "number_with_fraction",
    config: `${HEAD}max_batch_size: 8.0\n${IO}`,
    says: "integer expected, got 8.0",
    at: "2:17",
    mended: true,
  },
  {
    name: "number_with_underscore",
    config:
      `${HEAD}max_batch_size: 8\n${IO}dynamic_batching { max_queue_delay_microseconds: 1_000 }\n`,
    says: "integer expected",
    at: "5:50",
    mended: true,
  },
  {
    name: "dims_as_strings",
    config: tensors(`data_type: TYPE_FP32 dims: [ "4" ]`),
    says: "without quotes",
    at: "2:48",
    mended: true,
  },
  {
    name: "dims_unknown_word",
    config: tensors("data_type: TYPE_FP32 dims: [ None, 4 ]"),
    says: "integer expected, got None",
    at: "2:48",
    mended: false,
  },
];
