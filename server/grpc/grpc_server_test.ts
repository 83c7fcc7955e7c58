import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import {
  LogSettingsRequestSchema,
  LogSettingsResponseSchema,
  ModelInferRequestSchema,
  ModelInferResponseSchema,
  ModelMetadataRequestSchema,
  ModelMetadataResponseSchema,
  ModelReadyRequestSchema,
  RepositoryIndexRequestSchema,
  RepositoryIndexResponseSchema,
  RepositoryModelLoadRequestSchema,
  RepositoryModelUnloadRequestSchema,
  ServerLiveResponseSchema,
  ServerReadyResponseSchema,
  SystemSharedMemoryStatusRequestSchema,
  TraceSettingRequestSchema,
  TraceSettingResponseSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { HealthCheckResponseSchema } from "../../proto/gen/health_pb.ts";
import { FakeClock } from "../core/fake_clock.ts";
import { DEFAULT_GRPC_OPTIONS, type GrpcOptions } from "./grpc_options.ts";
import { createGrpcHandler } from "./grpc_server.ts";
import { MemoryApi } from "./memory_api.ts";
import { MemoryStream } from "./memory_stream.ts";

const INFERENCE = "/inference.GRPCInferenceService";

function setUp(options: Partial<GrpcOptions> = {}) {
  const api = new MemoryApi();
  const clock = new FakeClock();
  const setTimer = (delayMs: number, callback: () => void) => clock.setTimer(delayMs, callback);
  const handler = createGrpcHandler(api, { ...DEFAULT_GRPC_OPTIONS, setTimer, ...options });
  const open = (path: string, headers: Record<string, string> = {}) => {
    const stream = new MemoryStream(path, headers);
    handler.open(stream);
    return stream;
  };
  const call = async (method: string, message: Uint8Array, headers?: Record<string, string>) => {
    const stream = open(method.startsWith("/") ? method : `${INFERENCE}/${method}`, headers);
    stream.message(message);
    stream.end();
    await stream.finished();
    assert.equal(stream.unreleased, 0);
    return stream;
  };
  return { api, clock, open, call };
}

function inferMessage(init: MessageInitShape<typeof ModelInferRequestSchema> = {}) {
  return toBinary(
    ModelInferRequestSchema,
    create(ModelInferRequestSchema, {
      modelName: "echo",
      id: "7",
      inputs: [{ name: "X", datatype: "FP32", shape: [1n, 4n] }],
      rawInputContents: [new Uint8Array(16).fill(3)],
      ...init,
    }),
  );
}

function error(stream: MemoryStream): [string | undefined, string] {
  const { trailers } = stream;
  return [trailers?.["grpc-status"], decodeURIComponent(trailers?.["grpc-message"] ?? "")];
}

Deno.test("ModelInfer answers with the outputs by reference and gives every buffer back", async () => {
  const { api, call } = setUp();
  const stream = await call("ModelInfer", inferMessage());
  assert.deepEqual(stream.trailers, { "grpc-status": "0" });
  assert.deepEqual(stream.responseHeaders, [["content-type", "application/grpc"]]);
  const [message] = stream.sent;
  assert.equal(new DataView(message!.buffer).getUint32(1), message!.length - 5);
  const response = fromBinary(ModelInferResponseSchema, message!.subarray(5));
  assert.equal(response.id, "7");
  assert.equal(response.modelVersion, "1");
  assert.deepEqual(response.outputs.map(({ name, datatype, shape }) => [name, datatype, shape]), [
    ["OUT_X", "FP32", [1n, 4n]],
  ]);
  assert.deepEqual(response.rawOutputContents, [new Uint8Array(16).fill(3)]);
  assert.equal(stream.sentParts[0]!.at(-1), api.requests[0]!.inputs[0]!.data);
  assert.equal(api.openResponses, 0);
});

Deno.test("ModelInfer keeps the request until the answer was written", async () => {
  const { api, open } = setUp();
  const stream = open(`${INFERENCE}/ModelInfer`);
  stream.writable = false;
  stream.message(inferMessage());
  await stream.finished();
  assert.equal(stream.unreleased, 1);
  assert.equal(api.openResponses, 1);
  stream.flush();
  assert.equal(stream.unreleased, 0);
  assert.equal(api.openResponses, 0);
});

Deno.test("ModelInfer tells of an unknown model before wrong fields", async () => {
  const { call } = setUp();
  const parameters = { timeout: { parameterChoice: { case: "boolParam", value: true } } } as const;
  assert.deepEqual(error(await call("ModelInfer", inferMessage({ parameters }))), [
    "3",
    "invalid value type for 'timeout' parameter, expected int64_param.",
  ]);
  const message = inferMessage({ modelName: "nope", parameters });
  assert.deepEqual(error(await call("ModelInfer", message)), [
    "5",
    "Request for unknown model: 'nope' is not found",
  ]);
});

Deno.test("ModelInfer refuses requests during shutdown", async () => {
  const { api, call } = setUp();
  api.exiting = true;
  assert.deepEqual(error(await call("ModelInfer", inferMessage())), [
    "14",
    "GRPC server is shutting down and has stopped accepting new requests.",
  ]);
});

Deno.test("ModelInfer cancels the request when the client has gone", async () => {
  const { api, open } = setUp();
  api.hold = true;
  const stream = open(`${INFERENCE}/ModelInfer`);
  stream.message(inferMessage());
  const [held] = api.held;
  assert.equal(held!.options.signal!.aborted, false);
  stream.disconnect();
  assert.equal(held!.options.signal!.aborted, true);
  assert.equal(stream.unreleased, 1);
  held!.answer();
  await Promise.resolve();
  await Promise.resolve();
  assert.equal(stream.unreleased, 0);
  assert.equal(api.openResponses, 0);
  assert.equal(stream.sent.length, 0);
});

Deno.test("ModelInfer ends with DEADLINE_EXCEEDED when its time is over", async () => {
  const { api, clock, open } = setUp();
  api.hold = true;
  const stream = open(`${INFERENCE}/ModelInfer`, { "grpc-timeout": "1500m" });
  stream.message(inferMessage());
  await clock.advance(1499);
  assert.equal(stream.trailers, undefined);
  await clock.advance(1);
  assert.deepEqual(error(stream), ["4", "Deadline Exceeded"]);
  assert.equal(api.held[0]!.options.signal!.aborted, true);
});

Deno.test("unary calls refuse a second message and a missing one", async () => {
  const { api, open } = setUp();
  api.hold = true;
  const twice = open(`${INFERENCE}/ModelInfer`);
  twice.message(inferMessage());
  twice.message(inferMessage());
  assert.equal(twice.trailers?.["grpc-status"], "13");
  assert.equal(api.held[0]!.options.signal!.aborted, true);
  api.held[0]!.answer();
  await Promise.resolve();
  await Promise.resolve();
  assert.equal(twice.unreleased, 0);
  const none = open(`${INFERENCE}/ServerLive`);
  none.end();
  assert.equal(none.trailers?.["grpc-status"], "13");
});

Deno.test("open() refuses unknown methods, encodings and timeouts", async () => {
  const { open, call } = setUp();
  assert.equal((await call("NoSuchMethod", new Uint8Array())).trailers?.["grpc-status"], "12");
  const encoding = open(`${INFERENCE}/ServerLive`, { "grpc-encoding": "snappy" });
  assert.equal(encoding.trailers?.["grpc-status"], "12");
  assert.equal(encoding.trailers?.["grpc-accept-encoding"], "identity, deflate, gzip");
  const timeout = open(`${INFERENCE}/ServerLive`, { "grpc-timeout": "soon" });
  assert.deepEqual(error(timeout), ["13", "Malformed grpc-timeout 'soon'"]);
  const flagged = open(`${INFERENCE}/ServerLive`);
  flagged.message(new Uint8Array(4), true);
  assert.equal(flagged.trailers?.["grpc-status"], "13");
  assert.equal(flagged.unreleased, 0);
});

Deno.test("unary calls answer INTERNAL to what is no message", async () => {
  const { call } = setUp();
  for (const bytes of [[0x0a, 0xff, 0x61], [0x0a, 2, 0xff, 0xfe], [0x0b, 0x0b]]) {
    const ready = await call("ModelReady", new Uint8Array(bytes));
    assert.deepEqual(error(ready), ["13", "Unable to parse request"]);
    const infer = await call("ModelInfer", new Uint8Array(bytes));
    assert.deepEqual(error(infer), ["13", "Unable to parse request"]);
  }
});

Deno.test("health calls follow the state of the server", async () => {
  const { api, call } = setUp();
  const empty = new Uint8Array();
  const read = (stream: MemoryStream) => stream.sent[0]!.subarray(5);
  const check = "/grpc.health.v1.Health/Check";
  assert.equal(
    fromBinary(ServerLiveResponseSchema, read(await call("ServerLive", empty))).live,
    true,
  );
  assert.equal(fromBinary(HealthCheckResponseSchema, read(await call(check, empty))).status, 1);
  api.ready = false;
  const ready = await call("ServerReady", empty);
  assert.equal(fromBinary(ServerReadyResponseSchema, read(ready)).ready, false);
  assert.equal(fromBinary(HealthCheckResponseSchema, read(await call(check, empty))).status, 2);
  api.exiting = true;
  for (const method of ["ServerLive", "ServerReady", check]) {
    assert.deepEqual(error(await call(method, empty)), ["14", "Server exiting"]);
  }
});

Deno.test("Watch tells the state at once, its changes, and ends at shutdown", async () => {
  const { api, clock, open } = setUp({ maxWatchers: 1 });
  const stream = open("/grpc.health.v1.Health/Watch");
  stream.message(new Uint8Array());
  stream.end();
  const statuses = () =>
    stream.sent.map((message) => fromBinary(HealthCheckResponseSchema, message.subarray(5)).status);
  assert.deepEqual(statuses(), [1]);
  const second = open("/grpc.health.v1.Health/Watch");
  second.message(new Uint8Array());
  assert.equal(second.trailers?.["grpc-status"], "8");
  api.ready = false;
  await clock.advance(1000);
  api.ready = true;
  await clock.advance(1000);
  assert.deepEqual(statuses(), [1, 2, 1]);
  api.exiting = true;
  await clock.advance(1000);
  assert.deepEqual(error(stream), ["14", "Server exiting"]);
  api.exiting = false;
  const third = open("/grpc.health.v1.Health/Watch");
  third.message(new Uint8Array());
  assert.equal(third.trailers, undefined);
  third.disconnect();
  await Promise.resolve();
  assert.equal(clock.timerCount, 0);
});

Deno.test("model calls answer from the facade", async () => {
  const { call } = setUp();
  const request = toBinary(
    ModelMetadataRequestSchema,
    create(ModelMetadataRequestSchema, { name: "echo" }),
  );
  const metadata = fromBinary(
    ModelMetadataResponseSchema,
    (await call("ModelMetadata", request)).sent[0]!.subarray(5),
  );
  assert.deepEqual(metadata.inputs[0]!.shape, [-1n, 4n]);
  const unknown = toBinary(
    ModelReadyRequestSchema,
    create(ModelReadyRequestSchema, { name: "x" }),
  );
  assert.equal((await call("ModelReady", unknown)).trailers?.["grpc-status"], "5");
});

Deno.test("RepositoryIndex fills unknown members with empty strings", async () => {
  const { call } = setUp();
  const encode = (init: MessageInitShape<typeof RepositoryIndexRequestSchema>) =>
    toBinary(RepositoryIndexRequestSchema, create(RepositoryIndexRequestSchema, init));
  const stream = await call("RepositoryIndex", encode({}));
  const { models } = fromBinary(RepositoryIndexResponseSchema, stream.sent[0]!.subarray(5));
  assert.deepEqual(models.map((entry) => [entry.name, entry.version, entry.state, entry.reason]), [
    ["echo", "1", "READY", ""],
    ["other", "", "", ""],
  ]);
  const named = await call("RepositoryIndex", encode({ repositoryName: "main" }));
  assert.deepEqual(error(named), ["12", "'repository_name' specification is not supported"]);
});

Deno.test("RepositoryModelLoad checks its parameters", async () => {
  const { api, call } = setUp();
  type Load = MessageInitShape<typeof RepositoryModelLoadRequestSchema>;
  const load = async (parameters: NonNullable<Load["parameters"]>) => {
    const message = { modelName: "m", parameters } as Load;
    return error(
      await call(
        "RepositoryModelLoad",
        toBinary(
          RepositoryModelLoadRequestSchema,
          create(RepositoryModelLoadRequestSchema, message),
        ),
      ),
    );
  };
  const text = { parameterChoice: { case: "stringParam", value: "{}" } } as const;
  const bytes = { parameterChoice: { case: "bytesParam", value: new Uint8Array([1]) } } as const;
  assert.deepEqual(await load({ config: text, "file:1/a": bytes }), ["0", ""]);
  assert.deepEqual({ ...api.loaded[0]![1] }, { config: "{}", "file:1/a": new Uint8Array([1]) });
  assert.deepEqual(await load({ config: bytes }), [
    "3",
    "invalid value type for load parameter 'config', expected string_param.",
  ]);
  assert.deepEqual(await load({ "file:1/a": text }), [
    "3",
    "invalid value type for load parameter 'file:1/a', expected bytes_param.",
  ]);
  assert.deepEqual(await load({ verbose: text }), ["3", "unrecognized load parameter 'verbose'."]);
});

Deno.test("RepositoryModelUnload takes unload_dependents only as bool_param", async () => {
  const { api, call } = setUp();
  type Unload = MessageInitShape<typeof RepositoryModelUnloadRequestSchema>;
  const unload = async (parameters: NonNullable<Unload["parameters"]>) => {
    const message = create(
      RepositoryModelUnloadRequestSchema,
      { modelName: "m", parameters } as Unload,
    );
    return error(
      await call(
        "RepositoryModelUnload",
        toBinary(RepositoryModelUnloadRequestSchema, message),
      ),
    );
  };
  const yes = { parameterChoice: { case: "boolParam", value: true } } as const;
  const text = { parameterChoice: { case: "stringParam", value: "true" } } as const;
  assert.deepEqual(await unload({ unload_dependents: yes, force: text }), ["0", ""]);
  assert.deepEqual(api.unloaded, [["m", true]]);
  assert.deepEqual(await unload({ unload_dependents: text }), [
    "3",
    "invalid value type for 'unload_dependents' parameter, expected bool_param.",
  ]);
});

Deno.test("shared memory calls answer as a server that has it off", async () => {
  const { call } = setUp();
  const disabled =
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.";
  const empty = new Uint8Array();
  for (const kind of ["System", "Cuda"]) {
    assert.deepEqual(error(await call(`${kind}SharedMemoryStatus`, empty)), ["0", ""]);
    for (const verb of ["Register", "Unregister"]) {
      assert.deepEqual(error(await call(`${kind}SharedMemory${verb}`, empty)), ["12", disabled]);
    }
  }
  const named = create(SystemSharedMemoryStatusRequestSchema, { name: "r" });
  const message = toBinary(SystemSharedMemoryStatusRequestSchema, named);
  assert.deepEqual(error(await call("SystemSharedMemoryStatus", message)), [
    "5",
    "Unable to find system shared memory region: 'r'",
  ]);
});

Deno.test("TraceSetting reads the defaults and checks before it refuses a change", async () => {
  const { call } = setUp();
  const trace = async (settings: Record<string, { value: string[] }>, modelName = "") => {
    const message = create(TraceSettingRequestSchema, { settings, modelName });
    return await call("TraceSetting", toBinary(TraceSettingRequestSchema, message));
  };
  const defaults = fromBinary(TraceSettingResponseSchema, (await trace({})).sent[0]!.subarray(5));
  const values = Object.entries(defaults.settings).map(([key, { value }]) => [key, value]);
  assert.deepEqual(Object.fromEntries(values), {
    trace_level: ["OFF"],
    trace_rate: ["1000"],
    trace_count: ["-1"],
    log_frequency: ["0"],
    trace_file: [""],
    trace_mode: ["triton"],
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
      { trace_level: { value: ["OFF", "TENSORS"] } },
      "3",
      "Expect only one trace level 'OFF' is specified",
    ],
    [
      { trace_file: { value: ["x"] } },
      "12",
      "trace file location can not be updated through network protocol",
    ],
    [
      { trace_rate: { value: ["5"] } },
      "12",
      "tracing is not available in this version, can not change trace_rate",
    ],
    [{ trace_rate: { value: [] }, colour: { value: ["red"] } }, "0", ""],
    [{ trace_level: { value: ["LOUD"] } }, "0", ""],
  ];
  for (const [settings, status, text] of cases) {
    assert.deepEqual(error(await trace(settings)), [status, text]);
  }
  assert.deepEqual(error(await trace({}, "nope")), ["3", "Request for unknown model : nope"]);
});

Deno.test("LogSettings reads the current values and checks before it refuses a change", async () => {
  const { call } = setUp();
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
  assert.deepEqual(error(await log({ log_info: text })), ["3", "expect boolean for 'log_info'"]);
  assert.deepEqual(error(await log({ log_format: text })), [
    "3",
    "invalid argument for log_format, got: xml",
  ]);
  assert.deepEqual(error(await log({ log_verbose_level: yes })), [
    "3",
    "expect int32 for 'log_verbose_level'",
  ]);
  assert.deepEqual(error(await log({ log_file: text })), [
    "12",
    "log file location can not be updated through network protocol",
  ]);
  assert.deepEqual(error(await log({ log_info: yes, log_colour: text })), ["0", ""]);
  assert.equal(error(await log({ log_info: no }))[0], "12");
});

Deno.test("restricted calls need their key", async () => {
  const { call } = setUp({
    restrictedProtocols: [{ categories: ["logging"], key: "Admin-Key", value: "let-me-in" }],
  });
  const empty = new Uint8Array();
  const name = "triton-grpc-protocol-admin-key";
  const refused = [
    "14",
    "This protocol is restricted, expecting header 'triton-grpc-protocol-Admin-Key'",
  ];
  assert.deepEqual(error(await call("LogSettings", empty)), refused);
  assert.deepEqual(error(await call("LogSettings", empty, { [name]: "out" })), refused);
  assert.deepEqual(error(await call("LogSettings", empty, { [name]: "let-me-in" })), ["0", ""]);
  assert.deepEqual(error(await call("TraceSetting", empty)), ["0", ""]);
});

Deno.test("metadata that match the pattern become parameters", async () => {
  const { api, call } = setUp({ headerForwardPattern: /fwd-.*/i });
  const parameters = {
    "fwd-a": { parameterChoice: { case: "int64Param", value: 1n } },
    own: { parameterChoice: { case: "doubleParam", value: 0.5 } },
  } as const;
  const headers = { "x-fwd-a": "1", "fwd-a": "2", other: "3", "fwd-blob-bin": "AA" };
  await call("ModelInfer", inferMessage({ parameters }), headers);
  assert.deepEqual({ ...api.requests[0]!.parameters }, { "x-fwd-a": "1", "fwd-a": "2", own: 0.5 });
});

Deno.test("small calls refuse large messages", async () => {
  const { call } = setUp();
  const stream = await call("ServerLive", new Uint8Array(5_000_000));
  assert.deepEqual(error(stream), [
    "8",
    "Received message larger than max (5000000 vs. 4194304)",
  ]);
});
