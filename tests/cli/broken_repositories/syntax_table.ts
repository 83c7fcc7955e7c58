import { type BrokenCase, IO } from "./broken_case.ts";

const HEAD = `backend: "identity"\n`;

/** Texts that are no protobuf text format. */
export const SYNTAX_CASES: readonly BrokenCase[] = [
  {
    name: "byte_order_mark",
    config: `\ufeff${HEAD}${IO}`,
    says: "byte order mark",
    at: "1:1",
    mended: true,
  },
  {
    name: "foreign_space",
    config: `backend:\u00a0"identity"\n${IO}`,
    says: "U+00A0",
    at: "1:9",
    mended: true,
  },
  {
    name: "curved_quotes",
    config: `backend: \u201cidentity\u201d\n${IO}`,
    says: "string expected",
    at: "1:10",
    mended: true,
  },
  {
    name: "bare_string",
    config: `backend: identity # the test backend\n${IO}`,
    says: `strings stand in quotes: "identity"`,
    at: "1:10",
    mended: true,
  },
  {
    name: "open_quote",
    config: `backend: "identity\n${IO}`,
    says: "the closing quote is missing",
    at: "1:10",
    mended: true,
  },
  {
    name: "mixed_quotes",
    config: `backend: 'identity"\n${IO}`,
    says: "closing quote",
    at: "1:10",
    mended: true,
  },
  {
    name: "quoted_number",
    config: `${HEAD}max_batch_size: "8"\n${IO}`,
    says: "without quotes",
    at: "2:17",
    mended: true,
  },
  {
    name: "equals_sign",
    config: `backend = "identity"\nmax_batch_size = 8\n${IO}`,
    says: `":" expected, got =`,
    at: "1:9",
    mended: true,
  },
  {
    name: "missing_colon",
    config: `backend "identity"\n${IO}`,
    says: `":" expected`,
    at: "1:9",
    mended: true,
  },
  {
    name: "quoted_names",
    config: `"backend": "identity",\n"max_batch_size": 8,\n${IO}`,
    says: "field names stand without quotes",
    at: "1:1",
    mended: true,
  },
  {
    name: "json_file",
    config: `{
  "backend": "identity",
  "maxBatchSize": 8,
  "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [4]}],
  "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": ["4"]}],
  "parameters": {"execute_delay_ms": {"string_value": "1"}}
}
`,
    says: "looks like JSON",
    at: "1:1",
    mended: true,
  },
  {
    name: "loose_json",
    config: `{
  "backend": "identity",
  "input": [{"name": "X", "data_type": "FP32", "dims": [4,]},],
  "output": [{"name": "Y", "data_type": "FP32", "dims": [4]}],
}
`,
    says: "looks like JSON",
    at: "1:1",
    mended: true,
  },
  {
    name: "missing_comma",
    config: `${HEAD}input { name: "X" data_type: TYPE_FP32 dims: [ 2 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2, 2 ] }
`,
    says: `"," or "]" expected`,
    at: "2:50",
    mended: true,
  },
  {
    name: "missing_comma_between_messages",
    config: `${HEAD}input [
  { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
  { name: "X2" data_type: TYPE_FP32 dims: [ 2 ] }
]
output [
  { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] },
  { name: "Y2" data_type: TYPE_FP32 dims: [ 2 ] }
]
`,
    says: `"," or "]" expected`,
    at: "4:3",
    mended: true,
  },
  {
    name: "trailing_comma",
    config: `${HEAD}input [
  { name: "X" data_type: TYPE_FP32 dims: [ 2, ] },
]
output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }
`,
    says: "remove the comma",
    at: "3:47",
    mended: true,
  },
  {
    name: "double_comma",
    config: `${HEAD}max_batch_size: 8\n${IO}dynamic_batching { preferred_batch_size: [ 2,, 4 ] }\n`,
    says: "integer expected",
    at: "5:46",
    mended: true,
  },
  {
    name: "double_semicolon",
    config: `backend: "identity";;\n${IO}`,
    says: "one separator is enough",
    at: "1:21",
    mended: true,
  },
  {
    name: "missing_brace_in_list",
    config: `${HEAD}input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] } ]
`,
    says: "is not closed",
    at: "2:54",
    mended: true,
  },
  {
    name: "missing_brace_by_layout",
    config: `${HEAD}dynamic_batching {
  # waits for more
  max_queue_delay_microseconds: 100
max_batch_size: 8
${IO}`,
    says: "is not closed",
    at: "8:1",
    mended: true,
  },
  {
    name: "missing_bracket",
    config: `${HEAD}input [ { name: "X" data_type: TYPE_FP32 dims: [ 4 ] }
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] } ]
`,
    says: "is not closed",
    at: "3:1",
    mended: true,
  },
  {
    name: "missing_bracket_of_dims",
    config: `${HEAD}input { name: "X" data_type: TYPE_FP32 dims: [ 4 }
output { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] }
`,
    says: "is not closed",
    at: "2:50",
    mended: true,
  },
  {
    name: "missing_brace_at_end",
    config: `${HEAD}max_batch_size: 8\n${IO}dynamic_batching { max_queue_delay_microseconds: 5\n`,
    says: "the end of the file",
    at: "6:1",
    mended: true,
  },
  {
    name: "extra_brace",
    config: `${HEAD}${IO}}\n`,
    says: "nothing is open",
    at: "4:1",
    mended: true,
  },
  {
    name: "slash_comment",
    config: `// A model.\n${HEAD}${IO}`,
    says: "comments begin with #",
    at: "1:1",
    mended: true,
  },
  {
    name: "dims_in_parentheses",
    config: `${HEAD}input { name: "X" data_type: TYPE_FP32 dims: (2, 2) }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2, 2 ] }
`,
    says: "integer expected, got (",
    at: "2:46",
    mended: true,
  },
  {
    name: "dims_in_braces",
    config: `${HEAD}input { name: "X" data_type: TYPE_FP32 dims { 2, 2 } }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2, 2 ] }
`,
    says: `":" expected`,
    at: "2:45",
    mended: true,
  },
  {
    name: "bare_list_element",
    config: `${HEAD}${IO}instance_group [ count: 1 kind: KIND_CPU ]\n`,
    says: `"{" expected`,
    at: "4:18",
    mended: true,
  },
  {
    name: "message_as_bool",
    config: `${HEAD}max_batch_size: 8\n${IO}dynamic_batching: true\n`,
    says: `"{" expected, got true`,
    at: "5:19",
    mended: true,
  },
  {
    name: "message_in_brackets",
    config: `${HEAD}max_batch_size: 8\n${IO}dynamic_batching [ ]\n`,
    says: `"{" expected`,
    at: "5:18",
    mended: true,
  },
  {
    name: "parameter_as_string",
    config: `${HEAD}${IO}parameters { key: "execute_delay_ms" value: "1" }\n`,
    says: "string_value",
    at: "4:45",
    mended: true,
  },
  {
    name: "parameter_as_number",
    config: `${HEAD}${IO}parameters { key: "execute_delay_ms" value { string_value: 1 } }\n`,
    says: "strings stand in quotes",
    at: "4:60",
    mended: true,
  },
  {
    name: "reshape_as_list",
    config: `${HEAD}input { name: "X" data_type: TYPE_FP32 dims: [ 4 ] reshape: [ 2, 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 4 ] reshape: [ 2, 2 ] }
`,
    says: "this is written reshape { shape",
    at: "2:61",
    mended: true,
  },
  {
    name: "cache_as_bool",
    config: `${HEAD}${IO}response_cache: true\n`,
    says: "this is written response_cache",
    at: "4:17",
    mended: true,
  },
  {
    name: "windows_lines",
    config: `${HEAD}max_batchsize: 8\n${IO}`.replaceAll("\n", "\r\n"),
    says: "did you mean max_batch_size?",
    at: "2:1",
    mended: true,
  },
  {
    name: "given_twice_the_same",
    config: `${HEAD}max_batch_size: 8\n${IO}max_batch_size: 8\n`,
    says: "given a second time",
    at: "5:1",
    mended: true,
  },
  {
    name: "given_twice",
    config: `${HEAD}max_batch_size: 8\n${IO}max_batch_size: 4\n`,
    says: "given a second time",
    at: "5:1",
    mended: false,
  },
  {
    name: "two_policies",
    config: `${HEAD}${IO}version_policy { all { } latest { num_versions: 1 } }\n`,
    says: "cannot stand beside all",
    at: "4:26",
    mended: false,
  },
  {
    name: "template",
    config: `${HEAD}max_batch_size: \${triton_max_batch_size}\n${IO}`,
    says: "a template that was not filled in",
    at: "2:17",
    mended: false,
  },
  {
    name: "missing_value",
    config: `max_batch_size:\n${HEAD}${IO}`,
    says: "the value is missing",
    at: "2:1",
    mended: false,
  },
  {
    name: "yaml_file",
    config: `backend: identity\ninput:\n  - name: X\n    data_type: TYPE_FP32\n    dims: [4]\n`,
    says: `"{" expected`,
    at: "3:3",
    mended: false,
  },
  {
    name: "other_bytes",
    config: Uint8Array.of(0x62, 0xff, 0xfe, 0x0a),
    says: "text in UTF-8 expected",
    at: "1:2",
    mended: false,
  },
];
