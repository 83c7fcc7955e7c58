import { deepEqual, equal } from "node:assert/strict";
import { fixConfigText, mendConfigText } from "./model_config_fix.ts";
import { parseModelConfig } from "./model_config.ts";

/** Text → mended text. */
const MENDED: readonly (readonly [string, string])[] = [
  ["name: foo # why\n", 'name: "foo" # why\n'],
  ["name: resnet-50.v1\n", 'name: "resnet-50.v1"\n'],
  ['name: "foo # why\n', 'name: "foo # why\n'],
  ['name: "foo\n', 'name: "foo"\n'],
  ["name: 'foo\"\n", 'name: "foo"\n'],
  ["name: \u201cfoo bar\u201d\n", 'name: "foo bar"\n'],
  ['\ufeffname:\u00a0"foo"\n', 'name: "foo"\n'],
  ['max_batch_size: "8"\n', "max_batch_size: 8\n"],
  ["max_batch_size = 8;\n", "max_batch_size : 8;\n"],
  ["max_batch_size 8\n", "max_batch_size: 8\n"],
  ['"max_batch_size": 8,\n', "max_batch_size: 8,\n"],
  ["max_batch_size: 8.0,,\n", "max_batch_size: 8,\n"],
  ["maxBatchSize: 1_000\n", "max_batch_size: 1000\n"],
  ["// one\n  // two\nmax_batch_size: 8\n", "# one\n  # two\nmax_batch_size: 8\n"],
  ["input { dims: [ 1 2, -1 ] }\n", "input { dims: [ 1, 2, -1 ] }\n"],
  ["input { dims: [ 1, 2, ] }\n", "input { dims: [ 1, 2 ] }\n"],
  ["input { dims: ( 1, 2 ) }\n", "input { dims: [ 1, 2 ] }\n"],
  ['input { dims: ["-1", "4"] }\n', "input { dims: [-1, 4] }\n"],
  ["input { dims: [ 4 }\n", "input { dims: [ 4 ] }\n"],
  ["input [ { dims: 4 ]\n", "input [ { dims: 4 } ]\n"],
  ["input [ dims: 4 ]\n", "input [ { dims: 4 } ]\n"],
  ["input { data_type: fp16 }\n", "input { data_type: TYPE_FP16 }\n"],
  ['input { data_type: "double" }\n', "input { data_type: TYPE_FP64 }\n"],
  ["instance_group { kind: gpu }\n", "instance_group { kind: KIND_GPU }\n"],
  ["input { dtype: fp32 dims: 4 }\n", "input { data_type: TYPE_FP32 dims: 4 }\n"],
  ["maxBatchSize: '8'\n", "max_batch_size: 8\n"],
  ["dynamic_batching: true\n", "dynamic_batching: { }\n"],
  ["dynamic_batching [ ]\n", "dynamic_batching { }\n"],
  ["response_cache: TRUE\n", "response_cache: { enable: true }\n"],
  ["input { reshape: [ 1 ] }\n", "input { reshape: { shape: [ 1 ] } }\n"],
  ['parameters { key: "a" value: b }\n', 'parameters { key: "a" value: { string_value: "b" } }\n'],
  ["max_batch_size: 8 # a\nmax_batch_size: 8\n# b\n", "max_batch_size: 8 # a\n# b\n"],
  ["max_batch_size: 8\n}\n", "max_batch_size: 8\n\n"],
  ["input {\n  dims: 4\noutput { dims: 4 }\n", "input {\n  dims: 4\n}\noutput { dims: 4 }\n"],
  [
    "input {\r\n  dims: 4\r\nmax_batch_size: 8\r\n",
    "input {\r\n  dims: 4\r\n}\r\nmax_batch_size: 8\r\n",
  ],
  ['{ "name": "m", "maxBatchSize": 8 }', 'name: "m"\nmax_batch_size: 8\n'],
  ['{ "name": "m", "max_batchsize": 8, }', ' name: "m", max_batch_size: 8, '],
];

/** Texts whose faults have no mend, or more than one. */
const LEFT: readonly string[] = [
  "max_batch_size: ${size}\n",
  "max_batch_size: {{ size }}\n",
  "max_batch_size:\n",
  "max_batch_size: 8.5\n",
  "max_batch_size: 8\nmax_batch_size: 4\n",
  "version_policy { all { } latest { } }\n",
  "input { data_type: TYPE_INT }\n",
  "input { data_type: int }\n",
  "input { data_type: TYPE_FP23 }\n",
  "input { dims: [ batch, 4 ] }\n",
  'name: "two words\n',
  "preferred_batch_size: [ 4 ]\n",
  "input { dtype: integer }\n",
  "input { shape: [ 4 ] }\n",
  "max_batch_size: 4 max_batchsize: 8\n",
];

Deno.test("fixConfigText() mends what has one mend only, and leaves the rest as it is", () => {
  for (const [text, expected] of MENDED) {
    const { text: fixed, mended } = fixConfigText(text);
    equal(fixed, expected);
    equal(mended.length > 0, text !== expected, text);
    equal(fixConfigText(fixed).text, fixed, "the second time changes nothing");
    if (text !== expected) deepEqual(parseModelConfig(fixed, "c").issues, [], fixed);
  }
});

Deno.test("fixConfigText() changes nothing where two mends are possible", () => {
  for (const text of LEFT) {
    deepEqual(fixConfigText(text), { text, mended: [] });
    equal(parseModelConfig(text, "c").issues.length > 0, true, text);
  }
});

Deno.test("a number that must not be negative has no mend", () => {
  for (const value of ["-1", "- 1", '-"1"', "-1.0"]) {
    const text = `version_policy { latest { num_versions: ${value} } }\n`;
    deepEqual(parseModelConfig(text, "c").issues.map(({ mend }) => mend), [undefined], value);
    deepEqual(fixConfigText(text), { text, mended: [] });
  }
  const text = 'input { dims: [ -"1", -1.0 ] }\n';
  equal(fixConfigText(text).text, "input { dims: [ -1, -1 ] }\n");
});

Deno.test("fixConfigText() mends beside a fault that it leaves", () => {
  const { text, mended } = fixConfigText("max_batch_size: ${size}\nname: foo\n");
  equal(text, 'max_batch_size: ${size}\nname: "foo"\n');
  deepEqual(mended.map(({ path }) => path), ["name"]);
});

Deno.test("fixConfigText() keeps every field that could be read", () => {
  const text = `# head
name: "m"
input [ { name: "X" data_type: FP32 dims: [ 4 ] } ] # first
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100 }
`;
  const before = parseModelConfig(text, "c").config;
  const after = parseModelConfig(fixConfigText(text).text, "c").config;
  equal(after.name, before.name);
  deepEqual(after.schedulingChoice, before.schedulingChoice);
  equal(fixConfigText(text).text, text.replace("FP32", "TYPE_FP32"));
});

Deno.test("fixConfigText() stays bounded on hostile text", () => {
  const texts = [
    "input { data_type: FP32 }\n".repeat(1000),
    "}".repeat(20_000),
    "input { ".repeat(20_000),
    "[".repeat(50_000),
    "a".repeat(2 * 1024 * 1024),
    '"'.repeat(50_000),
  ];
  for (const text of texts) {
    const begin = performance.now();
    fixConfigText(text);
    equal(performance.now() - begin < 30_000, true, text.slice(0, 10));
  }
});

Deno.test("fixConfigText() mends more faults than one scan tells", () => {
  const text = 'input { name: "X" data_type: FP32 dims: 4 }\n'.repeat(350);
  const { text: fixed } = fixConfigText(text);
  equal(fixed, text.replaceAll("FP32", "TYPE_FP32"));
});

Deno.test("mendConfigText() sets, adds and removes fields", () => {
  const mend = (text: string, ...fields: { path: string; value: string | undefined }[]) =>
    mendConfigText(text, [{ path: "", message: "", mend: { fields } }]).text;
  const remove = (path: string) => ({ path, value: undefined });
  equal(
    mend("backend: 'a' # b\n", { path: "backend", value: '"c"' }),
    'backend: "c" # b\n',
  );
  equal(mend("name: 'a'", { path: "backend", value: '"c"' }), "name: 'a'\nbackend: \"c\"\n");
  equal(mend("", { path: "backend", value: '"c"' }), 'backend: "c"\n');
  equal(
    mend("input { name: 'X' }\n", { path: "input[0].data_type", value: "TYPE_FP32" }),
    "input { name: 'X' data_type: TYPE_FP32 }\n",
  );
  equal(
    mend("input [\n  { name: 'X'\n    dims: [ 4 ] # rows\n  }\n]\n", {
      path: "input[0].data_type",
      value: "TYPE_FP32",
    }),
    "input [\n  { name: 'X'\n    dims: [ 4 ] # rows\ndata_type: TYPE_FP32\n  }\n]\n",
  );
  equal(
    mend("input { dims: [ 4 ] }\n", { path: "input[1]", value: "{ dims: [ 2 ] }" }),
    "input { dims: [ 4 ] }\ninput { dims: [ 2 ] }\n",
  );
  const sizes = "dynamic_batching { preferred_batch_size: [ 4, 16, 8 ] }\n";
  const size = (index: number) => `dynamic_batching.preferred_batch_size[${index}]`;
  equal(mend(sizes, remove(size(1))), sizes.replace("16, ", ""));
  equal(mend(sizes, remove(size(2))), sizes.replace(", 8", ""));
  equal(mend("a: 1", remove("a")), "a: 1");
  equal(
    mend("name: 'm'\n# old\noptimization { }\nbackend: 'b'\n", remove("optimization")),
    "name: 'm'\n# old\nbackend: 'b'\n",
  );
});

Deno.test("mendConfigText() leaves out mends that contradict each other", () => {
  const set = (value: string) => ({
    path: "backend",
    message: "",
    mend: { fields: [{ path: "backend", value }] },
  });
  const { text, mended } = mendConfigText("backend: 'a'\n", [set('"b"'), set('"c"'), set('"b"')]);
  equal(text, "backend: 'a'\n");
  equal(mended.length, 0);
});
