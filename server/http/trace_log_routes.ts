import type { JsonObject, JsonValue } from "../../proto/json_value.ts";
import { ServerError } from "../../proto/status.ts";
import type { LogSettingChange, LogSettingValues } from "../core/options_frontend.ts";
import {
  parseTraceNumber,
  type ShownTraceSetting,
  TRACE_NUMBERS,
  type TraceChange,
  traceFileError,
} from "../core/options_trace.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import type { HttpContext, PathParts } from "./http_context.ts";
import { type JsonOutput, jsonResponse } from "./json_response.ts";
import { readObject } from "./request_json.ts";

/** `GET /v2/trace/setting` and `GET /v2/models/M/trace/setting` (http.md §7). */
export function getTraceSettings(
  { api }: HttpContext,
  _request: HttpRequest,
  { model }: PathParts,
): HttpResponse {
  return traceResponse(api.traceSetting(model));
}

/** `POST` of the same. */
export function postTraceSettings(
  context: HttpContext,
  request: HttpRequest,
  { model }: PathParts,
): HttpResponse {
  const members = readObject(context, request) ?? new Map();
  // What is wrong with the model goes first.
  context.api.traceSetting(model);
  return traceResponse(context.api.traceSetting(model, readTraceChange(members)));
}

function traceResponse(setting: ShownTraceSetting): HttpResponse {
  const members = setting.map(([name, values]) =>
    [name, name === "trace_level" ? [...values] : values.join(",")] as const
  );
  return jsonResponse(Object.fromEntries(members));
}

function readTraceChange(members: JsonObject): TraceChange {
  if ((members.get("trace_file") ?? null) !== null) throw traceFileError();
  const change: Record<string, unknown> = {};
  const level = members.get("trace_level");
  if (level !== undefined) change.levels = readLevels(level);
  for (const [name, key] of TRACE_NUMBER_ENTRIES) {
    const value = members.get(name);
    if (value !== undefined) change[key] = readNumber(name, value);
  }
  return change;
}

type TraceNumber = keyof typeof TRACE_NUMBERS;

const TRACE_NUMBER_ENTRIES = Object.entries(TRACE_NUMBERS) as [TraceNumber, string][];

function readLevels(value: JsonValue): readonly string[] | null {
  if (value === null) return null;
  if (!Array.isArray(value)) {
    throw invalid("Unable to parse 'trace_level': attempt to access JSON non-array as array");
  }
  return value.map((level) => {
    if (typeof level === "string") return level;
    throw invalid("Unable to parse 'trace_level': attempt to access JSON non-string as string");
  });
}

function readNumber(name: TraceNumber, value: JsonValue): number | null {
  if (value === null) return null;
  if (typeof value === "string") return parseTraceNumber(name, value, "");
  throw invalid(`Unable to parse '${name}': attempt to access JSON non-string as string`);
}

/** `GET /v2/logging` (http.md §8). */
export function getLogSettings({ api }: HttpContext): HttpResponse {
  return logResponse(api.logSettings());
}

/** `POST /v2/logging`: members are applied one after the other, an error leaves the earlier ones applied. */
export function postLogSettings(context: HttpContext, request: HttpRequest): HttpResponse {
  const { api } = context;
  const members: JsonObject = readObject(context, request) ?? new Map();
  if ((members.get("log_file") ?? null) !== null) {
    throw new ServerError(
      "UNSUPPORTED",
      "log file location can not be updated through network protocol",
    );
  }
  for (const [name, key, type] of LOG_MEMBERS) {
    const value = members.get(name) ?? null;
    if (value !== null) api.logSettings(readLogMember(name, key, { value, type }));
  }
  return logResponse(api.logSettings());
}

type LogKey = keyof LogSettingChange;
type LogType = "boolean" | "unsigned-integer" | "string";

const LOG_MEMBERS: readonly (readonly [name: string, key: LogKey, type: LogType])[] = [
  ["log_info", "logInfo", "boolean"],
  ["log_warning", "logWarning", "boolean"],
  ["log_error", "logError", "boolean"],
  ["log_verbose_level", "logVerboseLevel", "unsigned-integer"],
  ["log_format", "logFormat", "string"],
];

function readLogMember(
  name: string,
  key: LogKey,
  { value, type }: { value: JsonValue; type: LogType },
): LogSettingChange {
  if (!isOfType(value, type)) {
    throw invalid(`Unable to parse '${name}': attempt to access JSON non-${type} as ${type}`);
  }
  if (key === "logFormat" && value !== "default" && value !== "ISO8601") {
    throw new ServerError("UNAVAILABLE", `invalid argument for --log_format, got: ${value}`);
  }
  return { [key]: typeof value === "bigint" ? Number(value) : value };
}

const MAX_VERBOSE_LEVEL = 4294967295n;

function isOfType(value: JsonValue, type: LogType): boolean {
  if (type === "boolean") return typeof value === "boolean";
  if (type === "string") return typeof value === "string";
  return typeof value === "bigint" && value >= 0n && value <= MAX_VERBOSE_LEVEL;
}

function logResponse(values: LogSettingValues): HttpResponse {
  const members: Record<string, JsonOutput> = {
    "log_file": values.logFile,
    "log_info": values.logInfo,
    "log_warning": values.logWarning,
    "log_error": values.logError,
    "log_verbose_level": values.logVerboseLevel,
    "log_format": values.logFormat,
  };
  return jsonResponse(members);
}

function invalid(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}
