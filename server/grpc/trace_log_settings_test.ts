import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import {
  LogSettingsRequestSchema,
  LogSettingsResponseSchema,
  TraceSettingRequestSchema,
  TraceSettingResponseSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { FakeClock } from "../core/fake_clock.ts";
import { createMemoryServer, statusOf } from "./memory_server.ts";

Deno.test("TraceSetting shows settings, and checks a change before it hands it on", async () => {
  const { call, api } = createMemoryServer(new FakeClock());
  const trace = async (settings: Record<string, { value: string[] }>, modelName = "") => {
    const message = create(TraceSettingRequestSchema, { settings, modelName });
    return await call("TraceSetting", toBinary(TraceSettingRequestSchema, message));
  };
  const defaults = fromBinary(TraceSettingResponseSchema, (await trace({})).sent[0]!.subarray(5));
  const values = Object.entries(defaults.settings).map(([key, { value }]) => [key, value]);
  assert.deepEqual(Object.fromEntries(values), {
    trace_level: ["OFF"],
    trace_rate: ["1000"],
  });
  const cases: [Record<string, { value: string[] }>, string, string][] = [
    [{ trace_rate: { value: ["fast"] } }, "3", "Unable to parse 'trace_rate', got: fast"],
    [
      { trace_rate: { value: ["10000000000"] } },
      "3",
      "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 10000000000",
    ],
    [
      { trace_count: { value: ["-2"] } },
      "3",
      "Unable to parse 'trace_count'. Expecting value >= -1, got: -2",
    ],
    [{ trace_rate: { value: ["1", "2"] } }, "3", "expect only 1 value for 'trace_rate'"],
    [
      { trace_file: { value: ["x"] } },
      "12",
      "trace file location can not be updated through network protocol",
    ],
    [{ trace_rate: { value: ["5"] } }, "0", ""],
    [{ trace_rate: { value: [] }, colour: { value: ["red"] } }, "0", ""],
    [{ trace_level: { value: ["LOUD"] } }, "0", ""],
  ];
  for (const [settings, status, text] of cases) {
    assert.deepEqual(statusOf(await trace(settings)), [status, text]);
  }
  assert.deepEqual(api.traceChanges.slice(-3), [
    ["", { rate: 5 }],
    ["", { rate: null }],
    ["", { levels: ["LOUD"] }],
  ]);
  assert.deepEqual(statusOf(await trace({}, "nope")), ["3", "Request for unknown model : nope"]);
});

Deno.test("LogSettings shows settings, and applies a change up to what is wrong in it", async () => {
  const { call, api } = createMemoryServer(new FakeClock());
  type Log = MessageInitShape<typeof LogSettingsRequestSchema>;
  const log = async (settings: NonNullable<Log["settings"]>) => {
    const message = create(LogSettingsRequestSchema, { settings } as Log);
    return await call("LogSettings", toBinary(LogSettingsRequestSchema, message));
  };
  const stream = await log({});
  const { settings } = fromBinary(LogSettingsResponseSchema, stream.sent[0]!.subarray(5));
  assert.equal(settings.log_info!.parameterChoice.value, true);
  assert.equal(settings.log_verbose_level!.parameterChoice.case, "uint32Param");
  const text = { parameterChoice: { case: "stringParam", value: "xml" } } as const;
  const yes = { parameterChoice: { case: "boolParam", value: true } } as const;
  const no = { parameterChoice: { case: "boolParam", value: false } } as const;
  assert.deepEqual(statusOf(await log({ log_info: text })), ["3", "expect boolean for 'log_info'"]);
  assert.deepEqual(statusOf(await log({ log_format: text })), [
    "3",
    "invalid argument for log_format, got: xml",
  ]);
  assert.deepEqual(statusOf(await log({ log_verbose_level: yes })), [
    "3",
    "expect int32 for 'log_verbose_level'",
  ]);
  assert.deepEqual(statusOf(await log({ log_file: text })), [
    "12",
    "log file location can not be updated through network protocol",
  ]);
  assert.deepEqual(statusOf(await log({ log_info: yes, log_colour: text })), ["0", ""]);
  const change = { "log_warning": no, "log_verbose_level": yes, "log_error": no };
  assert.equal(statusOf(await log(change))[0], "3");
  assert.equal(api.log.settings.warning, false);
  assert.equal(api.log.settings.error, false);
});
