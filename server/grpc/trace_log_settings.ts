import type { MessageInitShape } from "@bufbuild/protobuf";
import type { InferenceApi } from "../core/inference_api.ts";
import type { LogSettingValues } from "../core/options_frontend.ts";
import type {
  LogSettingsRequest,
  LogSettingsRequest_SettingValue,
  LogSettingsResponseSchema,
  TraceSettingRequest,
  TraceSettingResponseSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { ServerError } from "../../proto/status.ts";

const TRACE_DEFAULTS: Readonly<Record<string, readonly string[]>> = {
  "trace_level": ["OFF"],
  "trace_rate": ["1000"],
  "trace_count": ["-1"],
  "log_frequency": ["0"],
  "trace_file": [""],
  "trace_mode": ["triton"],
};

const TRACE_RANGES: Readonly<Record<string, readonly [low: bigint, high: bigint]>> = {
  "trace_rate": [0n, 4294967295n],
  "trace_count": [-1n, 2147483647n],
  "log_frequency": [0n, 4294967295n],
};

const TRACE_LEVELS: ReadonlySet<string> = new Set(["OFF", "TIMESTAMPS", "TENSORS"]);

function invalid(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}

/**
 * Answers TraceSetting (grpc.md §2.3). Settings can be read; a request that would change one is checked and then
 * refused, because tracing is not there yet.
 */
export function traceSetting(
  api: InferenceApi,
  request: TraceSettingRequest,
): MessageInitShape<typeof TraceSettingResponseSchema> {
  if (request.modelName !== "") checkTracedModel(api, request.modelName);
  const changed: string[] = [];
  if (request.settings.trace_file !== undefined) {
    throw new ServerError(
      "UNSUPPORTED",
      "trace file location can not be updated through network protocol",
    );
  }
  if (changesLevel(request.settings.trace_level?.value ?? [])) changed.push("trace_level");
  for (const [name, range] of Object.entries(TRACE_RANGES)) {
    const values = request.settings[name]?.value ?? [];
    if (values.length === 0) continue;
    if (values.length > 1) throw invalid(`expect only 1 value for '${name}'`);
    checkTraceNumber(name, values[0]!, range);
    if (values[0] !== TRACE_DEFAULTS[name]![0]) changed.push(name);
  }
  if (changed.length > 0) {
    throw new ServerError(
      "UNSUPPORTED",
      `tracing is not available in this version, can not change ${changed.join(", ")}`,
    );
  }
  const settings: Record<string, { value: string[] }> = {};
  for (const [name, value] of Object.entries(TRACE_DEFAULTS)) {
    settings[name] = { value: [...value] };
  }
  return { settings };
}

function checkTracedModel(api: InferenceApi, name: string): void {
  try {
    api.modelMetadata(name, "");
  } catch {
    throw invalid(`Request for unknown model : ${name}`);
  }
}

function changesLevel(values: readonly string[]): boolean {
  const levels = values.filter((value) => TRACE_LEVELS.has(value));
  if (!levels.some((level) => level !== "OFF")) return false;
  if (levels.includes("OFF")) throw invalid("Expect only one trace level 'OFF' is specified");
  throw invalid("Attempting to set invalid trace setting :trace file name is not given");
}

function checkTraceNumber(
  name: string,
  text: string,
  [low, high]: readonly [bigint, bigint],
): void {
  if (!/^[-+]?\d{1,40}$/.test(text)) throw invalid(`Unable to parse '${name}', got: ${text}`);
  const value = BigInt(text.replace("+", ""));
  if (name === "trace_count" && value < -1n) {
    throw invalid(`Unable to parse 'trace_count'. Expecting value >= -1, got: ${text}`);
  }
  if (value < low || value > high) {
    throw invalid(
      `Unable to parse '${name}', value is out of range [ ${low}, ${high} ], got: ${text}`,
    );
  }
}

type LogKind = "boolParam" | "uint32Param" | "stringParam";

/** Wire name, member, kind and the kind's name in errors. */
const LOG_SETTINGS: readonly (readonly [string, keyof LogSettingValues, LogKind, string])[] = [
  ["log_file", "logFile", "stringParam", "string"],
  ["log_info", "logInfo", "boolParam", "boolean"],
  ["log_warning", "logWarning", "boolParam", "boolean"],
  ["log_error", "logError", "boolParam", "boolean"],
  ["log_verbose_level", "logVerboseLevel", "uint32Param", "int32"],
  ["log_format", "logFormat", "stringParam", "string"],
];

/** Answers LogSettings (grpc.md §2.4); like {@linkcode traceSetting} it refuses changes. */
export function logSettings(
  current: LogSettingValues,
  request: LogSettingsRequest,
): MessageInitShape<typeof LogSettingsResponseSchema> {
  const changed: string[] = [];
  for (const [name, member, kind, kindName] of LOG_SETTINGS) {
    const setting = request.settings[name];
    if (setting === undefined) continue;
    if (name === "log_file") {
      throw new ServerError(
        "UNSUPPORTED",
        "log file location can not be updated through network protocol",
      );
    }
    checkLogSetting(setting, { name, kind, kindName });
    if (setting.parameterChoice.value !== current[member]) changed.push(name);
  }
  if (changed.length > 0) {
    throw new ServerError(
      "UNSUPPORTED",
      `log settings can not be changed while the server runs in this version: ${
        changed.join(", ")
      }`,
    );
  }
  const settings = LOG_SETTINGS.map(([name, member, kind]) =>
    [name, { parameterChoice: { case: kind, value: current[member] } }] as const
  );
  return { settings: Object.fromEntries(settings) } as MessageInitShape<
    typeof LogSettingsResponseSchema
  >;
}

function checkLogSetting(
  setting: LogSettingsRequest_SettingValue,
  expected: { name: string; kind: LogKind; kindName: string },
): void {
  const choice = setting.parameterChoice;
  if (choice.case !== expected.kind) {
    throw invalid(`expect ${expected.kindName} for '${expected.name}'`);
  }
  if (expected.name !== "log_format") return;
  if (choice.value !== "default" && choice.value !== "ISO8601") {
    throw invalid(`invalid argument for log_format, got: ${choice.value}`);
  }
}
