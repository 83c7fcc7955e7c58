import assert from "node:assert/strict";
import { DEFAULT_TRACE_OPTIONS, type TraceOptions } from "../core/options_trace.ts";
import { parseFlags } from "./flags.ts";
import { readTraceOptions, type ReadVariable } from "./trace_flags.ts";

function read(args: readonly string[], variables: ReadVariable = () => undefined): TraceOptions {
  return readTraceOptions(parseFlags(args), variables);
}

function fault(...args: string[]): string {
  try {
    read(args);
  } catch (reason) {
    return (reason as Error).message;
  }
  return "";
}

Deno.test("readTraceOptions() has Triton's defaults", () => {
  const { openTelemetry, ...options } = read([]);
  const { openTelemetry: preset, ...rest } = DEFAULT_TRACE_OPTIONS;
  assert.deepEqual(options, rest);
  assert.deepEqual({ ...openTelemetry, shown: [] }, preset);
});

Deno.test("readTraceOptions() reads every form of --trace-config", () => {
  const options = read([
    "--trace-config=mode=opentelemetry",
    "--trace-config",
    "level=TENSORS",
    "--trace-config=level=min",
    "--trace-config=rate=5",
    "--trace-config=rate=6",
    "--trace-config=count=7",
    "--trace-config=triton,file=a=b.json",
    "--trace-config=triton,log-frequency=8",
    "--trace-config=opentelemetry,url=localhost:10000/v1/traces",
    "--trace-config=opentelemetry,resource=test.key=test=value",
    "--trace-config=opentelemetry,resource=service.name=mine",
    "--trace-config=opentelemetry,bsp_schedule_delay=0",
  ], (name) => ({ OTEL_BSP_MAX_QUEUE_SIZE: "9", OTEL_BSP_SCHEDULE_DELAY: "10" })[name]);
  assert.deepEqual(options, {
    mode: "opentelemetry",
    values: { levels: ["TIMESTAMPS", "TENSORS"], rate: 6, count: 7, logFrequency: 8 },
    file: "a=b.json",
    openTelemetry: {
      url: "http://localhost:10000/v1/traces",
      resource: [["test.key", "test=value"], ["service.name", "mine"]],
      maxQueueSize: 9,
      scheduleDelayMs: 0,
      maxExportBatchSize: 512,
      shown: [
        ["url", "localhost:10000/v1/traces"],
        ["resource", "test.key=test=value"],
        ["resource", "service.name=mine"],
        ["bsp_max_queue_size", "9"],
        ["bsp_schedule_delay", "0"],
        ["bsp_max_export_batch_size", "512"],
      ],
    },
  });
});

Deno.test("readTraceOptions() takes the older flags, behind the new ones", () => {
  const old = [
    "--trace-file=old.json",
    "--trace-level=MAX",
    "--trace-rate=3",
    "--trace-count=4",
    "--trace-log-frequency=5",
  ];
  const { file, values } = read(old);
  assert.equal(file, "old.json");
  assert.deepEqual(values, { levels: ["TIMESTAMPS"], rate: 3, count: 4, logFrequency: 5 });
  const both = read([...old, "--trace-config=level=TENSORS", "--trace-config=triton,file=new"]);
  assert.equal(both.file, "new");
  assert.deepEqual(both.values.levels, ["TENSORS"]);
  assert.deepEqual(read([...old, "--trace-level=OFF"]).values.levels, []);
});

Deno.test("readTraceOptions() says what is wrong, and with which setting", () => {
  const format = `Bad option: "--trace-config".\n--trace-config option format is ` +
    `'<trace mode>,<setting>=<value>'. Got `;
  for (const text of ["level", "=x", "triton,=x", "magic,a=b", "rate="]) {
    assert.equal(fault(`--trace-config=${text}`), format + text);
  }
  const rows: readonly (readonly [string, string, RegExp])[] = [
    ["level=SOMETIMES", "level", /^invalid value for trace level option: SOMETIMES$/],
    ["rate=often", "rate", /^Invalid option value\. Got often$/],
    ["rate=-1", "rate", /^Provided option value is out of bound\. Got -1/],
    ["count=-2", "count", /^Provided option value is out of bound\. Got -2/],
    ["mode=magic", "mode", /^invalid value for trace mode option: magic\. Available options are/],
    ["rats=1", "rats", /^unknown trace setting 'rats'; expected mode, level, rate, count$/],
    ["opentelemetry,bsp_max_queue_size=bad", "opentelemetry,bsp_max_queue_size", /Got bad$/],
    ["opentelemetry,bsp_max_queue_size=0", "opentelemetry,bsp_max_queue_size", /Got 0, expec/],
    ["opentelemetry,resource=x", "opentelemetry,resource", /expected <key>=<value>\. Got x$/],
    ["opentelemetry,url=http://", "opentelemetry,url", /expected an http or https address/],
  ];
  for (const [text, name, message] of rows) {
    const [head, ...rest] = fault(`--trace-config=${text}`).split("\n");
    assert.equal(head, `Bad option: "--trace-config ${name}".`);
    assert.match(rest.join("\n"), message);
  }
  assert.throws(
    () => read([], (name) => name === "OTEL_BSP_SCHEDULE_DELAY" ? "bad_value" : undefined),
    /^ServerError: Bad option: "OTEL_BSP_SCHEDULE_DELAY"\.\nInvalid option value\. Got bad_value$/,
  );
});
