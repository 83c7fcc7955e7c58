import type { MessageInitShape } from "@bufbuild/protobuf";
import type { InferenceApi } from "../core/inference_api.ts";
import type { LogSettingValues } from "../core/options_frontend.ts";
import {
  parseTraceNumber,
  TRACE_NUMBERS,
  type TraceChange,
  traceFileError,
} from "../core/options_trace.ts";
import type {
  LogSettingsRequest,
  LogSettingsRequest_SettingValue,
  LogSettingsResponseSchema,
  TraceSettingRequest,
  TraceSettingResponseSchema,
} from "../../proto/gen/grpc_service_pb.ts";
import { ServerError } from "../../proto/status.ts";

type TraceNumber = keyof typeof TRACE_NUMBERS;

const TRACE_NUMBER_ENTRIES = Object.entries(TRACE_NUMBERS) as [TraceNumber, string][];

/** Answers TraceSetting (grpc.md §2.3). */
export function traceSetting(
  api: InferenceApi,
  { modelName, settings: wanted }: TraceSettingRequest,
): MessageInitShape<typeof TraceSettingResponseSchema> {
  // What is wrong with the model goes first.
  api.traceSetting(modelName);
  const settings: Record<string, { value: string[] }> = Object.create(null);
  for (const [name, values] of api.traceSetting(modelName, readTraceChange(wanted))) {
    settings[name] = { value: [...values] };
  }
  return { settings };
}

/** An empty list clears a setting. */
function readTraceChange(settings: TraceSettingRequest["settings"]): TraceChange {
  if (settings.trace_file !== undefined) throw traceFileError();
  const change: Record<string, unknown> = {};
  const levels = settings.trace_level?.value;
  if (levels !== undefined) change.levels = levels.length === 0 ? null : levels;
  for (const [name, key] of TRACE_NUMBER_ENTRIES) {
    const values = settings[name]?.value;
    if (values === undefined) continue;
    if (values.length > 1) throw invalid(`expect only 1 value for '${name}'`);
    change[key] = values.length === 0 ? null : parseTraceNumber(name, values[0]!);
  }
  return change;
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

/** Answers LogSettings (grpc.md §2.4): settings are applied one after the other, as over HTTP. */
export function logSettings(
  api: InferenceApi,
  request: LogSettingsRequest,
): MessageInitShape<typeof LogSettingsResponseSchema> {
  for (const [name, member, kind, kindName] of LOG_SETTINGS) {
    const setting = request.settings[name];
    if (setting === undefined) continue;
    if (name === "log_file") {
      throw new ServerError(
        "UNSUPPORTED",
        "log file location can not be updated through network protocol",
      );
    }
    api.logSettings({ [member]: valueOf(setting, { name, kind, kindName }) });
  }
  const values = api.logSettings();
  const settings = LOG_SETTINGS.map(([name, member, kind]) =>
    [name, { parameterChoice: { case: kind, value: values[member] } }] as const
  );
  return { settings: Object.fromEntries(settings) } as MessageInitShape<
    typeof LogSettingsResponseSchema
  >;
}

function valueOf(
  { parameterChoice: choice }: LogSettingsRequest_SettingValue,
  expected: { name: string; kind: LogKind; kindName: string },
): boolean | number | string | undefined {
  if (choice.case === expected.kind) return choice.value;
  throw invalid(`expect ${expected.kindName} for '${expected.name}'`);
}

function invalid(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}
