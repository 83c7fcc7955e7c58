import { deepEqual, equal, match, ok } from "node:assert/strict";
import { formatConfigIssue, parseModelConfig } from "./model_config.ts";

function issuesOf(text: string): string[] {
  const { issues, positions } = parseModelConfig(text, "m/config.pbtxt");
  return issues.map((issue) => formatConfigIssue(issue, positions));
}

const IO = `input [ { name: "A" data_type: TYPE_FP32 dims: [ 4 ] } ]`;

/** Text → what its issues must be: beginnings of lines. */
const FAULTS: readonly [string, readonly string[]][] = [
  [
    "max_batch_size: ${triton_max_batch_size}\n",
    ["m/config.pbtxt:1:17: max_batch_size: integer expected, got ${triton_max_batch_size}; this looks like a template"],
  ],
  [
    `backend: "\${backend}"\nmax_batch_size: {{ size }}`,
    ["m/config.pbtxt:2:17: max_batch_size: integer expected, got {{ size }}; this looks like a template"],
  ],
  [
    `backend: "onnxruntime\nmax_batch_size: 8\n`,
    [`m/config.pbtxt:1:10: backend: string expected, got "onnxruntime; the closing quote is missing`],
  ],
  [
    "backend: onnxruntime",
    [`m/config.pbtxt:1:10: backend: string expected, got onnxruntime; strings stand in quotes: "onnxruntime"`],
  ],
  [
    "step [ { model_name: 'a' } ]",
    ["m/config.pbtxt:1:1: step: unknown field, ModelConfig has no field step; step belongs to ensemble_scheduling"],
  ],
  ["maxBatchSize: 4", [
    "m/config.pbtxt:1:1: maxBatchSize: unknown field, ModelConfig has no field maxBatchSize; did you mean max_batch_size?",
  ]],
  [
    "input { name: 'A' data_type: FP32 dims: 1 }",
    ["m/config.pbtxt:1:30: input[0].data_type: a value of DataType expected, got FP32; did you mean TYPE_FP32?"],
  ],
  ["instance_group { kind: kind_cpu }", [
    "m/config.pbtxt:1:24: instance_group[0].kind: one of KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL expected, got kind_cpu; did you mean KIND_CPU?",
  ]],
  ["input { data_type: 99 }", ["m/config.pbtxt:1:20: input[0].data_type: one of"]],
  ["\ufeffname: 'm'", [
    "m/config.pbtxt:1:1: field name expected, got the character U+FEFF; the file begins with a byte order mark",
  ]],
  ["input [ { dims: [ 1, ] } ]", [
    'm/config.pbtxt:1:22: input[0].dims: another element expected, got "]"; remove the comma before it',
  ]],
  ["input [ { dims: [ 1 2 ] } ]", [
    'm/config.pbtxt:1:21: input[0].dims: "," or "]" expected, got 2',
  ]],
  ["dynamic_batching { }\ndynamic_batching { }", [
    "m/config.pbtxt:2:1: dynamic_batching: given a second time, the first is at 1:1",
  ]],
  ["dynamic_batching { }\nsequence_batching { }", [
    "m/config.pbtxt:2:1: sequence_batching: cannot stand beside dynamic_batching at 1:1; give only one of",
  ]],
  ["max_batch_size: 2147483648", [
    "m/config.pbtxt:1:17: max_batch_size: an integer from -2147483648 to 2147483647 expected, got 2147483648",
  ]],
  ["input { dims: [ None, 4 ] }", [
    "m/config.pbtxt:1:17: input[0].dims[0]: integer expected, got None; -1 stands for any size",
  ]],
  ["input { dims: 3, 224 }", [
    `m/config.pbtxt:1:18: input[0]: field name or "}" expected, got 224; fields are given by name, several`,
  ]],
  ["max_batch_size: 4.5", ["m/config.pbtxt:1:17: max_batch_size: integer expected, got 4.5"]],
  [`max_batch_size: "8"`, [
    `m/config.pbtxt:1:17: max_batch_size: integer expected, got "8"; this value stands without quotes`,
  ]],
  ["max_batch_size: \ninput [ ]", [
    "m/config.pbtxt:2:1: max_batch_size: integer expected, got input; the value is missing",
  ]],
  ["max_batch_size 8", [`m/config.pbtxt:1:16: max_batch_size: ":" expected, got 8`]],
  ["version_policy { latest { num_versions: -1 } }", [
    "m/config.pbtxt:1:41: version_policy.latest.num_versions: non-negative integer expected, got -1",
  ]],
  [`parameters { key: "a" value: "1" }`, [
    `m/config.pbtxt:1:30: parameters["a"]: "{" expected, got "1"; this is written value { string_value: "…" }`,
  ]],
  [`parameters { "a": "1" }`, [
    `m/config.pbtxt:1:14: parameters[0]: key or value expected, got "a"; entries are written parameters { key: … value: … }`,
  ]],
  [`{ "name": "m" }`, [`m/config.pbtxt:1:1: field name expected, got "{"; this looks like JSON`]],
  ["4: 8", [
    "m/config.pbtxt:1:1: field name expected, got 4; fields are given by name, several values in brackets",
  ]],
  ["instance_group [ { count: 1 ]", [
    `m/config.pbtxt:1:29: instance_group[0]: "}" expected, got "]"; the { at 1:18 is not closed`,
  ]],
  ["instance_group { count: 1", [
    `m/config.pbtxt:1:26: instance_group[0]: "}" expected, got the end of the file; the { at 1:16 is not closed`,
  ]],
  ["}", [`m/config.pbtxt:1:1: field name expected, got "}"; nothing is open that it could close`]],
  [`backend: "a\\q"`, ["m/config.pbtxt:1:10: backend: a known escape sequence expected"]],
];

Deno.test("parseModelConfig() tells line, column, field, expectation and hint of each fault", () => {
  for (const [text, expected] of FAULTS) {
    const issues = issuesOf(text);
    equal(issues.length, expected.length, `${text} gave ${issues.join(" | ")}`);
    for (const [index, start] of expected.entries()) {
      ok(issues[index]?.startsWith(start), `${issues[index]} should begin with ${start}`);
    }
  }
});

Deno.test("parseModelConfig() reports all faults of a file together", () => {
  const text = [
    "max_batchsize: 4",
    "input [ { name: 'A' data_type: TYPE_FLOAT dims: [ x ] } ]",
    "dynamic_batching { preferred_batch_size: [ 4, ${n} ] max_queue_delay_ms: 5 }",
    "backend: onnxruntime",
  ].join("\n");
  const places = issuesOf(text).map((issue) => issue.split(": ", 2).join(": "));
  equal(
    places.join("\n"),
    [
      "m/config.pbtxt:1:1: max_batchsize",
      "m/config.pbtxt:2:32: input[0].data_type",
      "m/config.pbtxt:2:51: input[0].dims[0]",
      "m/config.pbtxt:3:47: dynamic_batching.preferred_batch_size[1]",
      "m/config.pbtxt:3:54: dynamic_batching.max_queue_delay_ms",
      "m/config.pbtxt:4:10: backend",
    ].join("\n"),
  );
});

Deno.test("parseModelConfig() reads the fields beside a faulty one", () => {
  const { config, issues } = parseModelConfig(`${IO} max_batch_size: 8 bakend: "x"`, "c");
  equal(issues.length, 1);
  equal(config.maxBatchSize, 8);
  equal(config.input[0]?.name, "A");
});

Deno.test("parseModelConfig() accepts the whole syntax of the text format", () => {
  const text = `# comment
    backend: 'onnx' "runtime", max_batch_size: 0x10;
    instance_group: [ { count: 03 }, < kind: KIND_CPU passive: t > ]
    instance_group { gpus: [ ] }
    input { name: "gr\\303\\266\\x41\\u00e9" data_type: 11 dims: 4 dims: [ -1, - 2 ] }
    sequence_batching { direct { minimum_slot_utilization: 1.5f } }
    parameters { key: "a" value: { string_value: "b" } }
    parameters [ { key: "c" } ]`;
  const { config, issues, positions } = parseModelConfig(text, "c");
  equal(issues.length, 0);
  equal(config.backend, "onnxruntime");
  equal(config.maxBatchSize, 16);
  equal(config.instanceGroup.length, 3);
  equal(config.instanceGroup[1]?.passive, true);
  equal(config.input[0]?.name, "gröAé");
  equal(config.input[0]?.dims.join(), "4,-1,-2");
  equal(config.parameters["a"]?.stringValue, "b");
  equal(positions.byPath.get("input[0].dims[2]")?.line, 5);
});

Deno.test("parseModelConfig() stays fast and bounded on hostile text", () => {
  for (
    const piece of ["{", "[", "input { ", "dims: [", '"', "a: ", "$", "<", "parameters { key: "]
  ) {
    const { issues } = parseModelConfig(piece.repeat(10_000), "c");
    ok(issues.length > 0 && issues.length <= 101, `${piece} gave ${issues.length}`);
  }
});

Deno.test("formatConfigIssue() names the nearest place of a field that is not there", () => {
  const { positions } = parseModelConfig(`name: "m"\n${IO}`, "m/config.pbtxt");
  const issue = { path: "input[0].reshape.shape[1]", message: "is wrong" };
  match(
    formatConfigIssue(issue, positions),
    /^is wrong \(m\/config\.pbtxt:2:9: input\[0\]\.reshape/,
  );
});

Deno.test("parseModelConfig() reads blanks, comments and escapes of any number", () => {
  const million = 1_000_000;
  for (const text of [" ".repeat(9 * million), "#\n".repeat(2 * million), "\n".repeat(million)]) {
    deepEqual(parseModelConfig(`${text}max_batch_size: 4`, "f").issues, []);
  }
  const name = "\\t".repeat(3 * million);
  const { config, issues } = parseModelConfig(`name: "${name}"`, "f");
  deepEqual(issues, []);
  equal(config.name.length, 3 * million);
});
