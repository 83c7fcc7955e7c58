import type { JsonObject, JsonValue } from "../../proto/json_value.ts";
import { ServerError } from "../../proto/status.ts";
import type { HttpRequest, HttpResponse } from "../transport/transport.ts";
import type { HttpContext, PathParts } from "./http_context.ts";
import { type JsonOutput, jsonResponse } from "./json_response.ts";
import { readObject } from "./request_json.ts";

/** Tracing is off and stays off, so these are the settings of every model (http.md §7). */
const TRACE_SETTINGS = {
  "trace_level": ["OFF"],
  "trace_rate": "1000",
  "trace_count": "-1",
  "log_frequency": "0",
  "trace_file": "",
  "trace_mode": "triton",
};

const TRACE_NUMBERS = ["trace_rate", "trace_count", "log_frequency"] as const;
const TRACE_LEVELS: ReadonlySet<JsonValue> = new Set(["OFF", "TIMESTAMPS", "TENSORS"]);
const UINT32_MAX = 4294967295n;
const INT32_MAX = 2147483647n;

/** `GET /v2/trace/setting` and `GET /v2/models/M/trace/setting`. */
export function getTraceSettings(
  { api }: HttpContext,
  _request: HttpRequest,
  { model }: PathParts,
): HttpResponse {
  if (model !== "") api.modelMetadata(model, "");
  return jsonResponse(TRACE_SETTINGS);
}

/** `POST` of the same: a request that would change something is checked and then refused. */
export function postTraceSettings(
  context: HttpContext,
  request: HttpRequest,
  path: PathParts,
): HttpResponse {
  const members = readObject(context, request) ?? new Map();
  if (path.model !== "") context.api.modelMetadata(path.model, "");
  if ((members.get("trace_file") ?? null) !== null) {
    throw new ServerError(
      "UNSUPPORTED",
      "trace file location can not be updated through network protocol",
    );
  }
  checkTraceLevel(members.get("trace_level") ?? null);
  for (const name of TRACE_NUMBERS) checkTraceNumber(name, members.get(name) ?? null);
  return getTraceSettings(context, request, path);
}

function checkTraceLevel(value: JsonValue): void {
  if (value === null) return;
  if (!Array.isArray(value)) {
    throw invalid("Unable to parse 'trace_level': attempt to access JSON non-array as array");
  }
  if (value.some((level) => typeof level !== "string")) {
    throw invalid("Unable to parse 'trace_level': attempt to access JSON non-string as string");
  }
  const levels = value.filter((level) => TRACE_LEVELS.has(level));
  if (levels.every((level) => level === "OFF")) return;
  if (levels.includes("OFF")) throw invalid("Expect only one trace level 'OFF' is specified");
  throw invalid("Attempting to set invalid trace setting :trace file name is not given");
}

function checkTraceNumber(name: (typeof TRACE_NUMBERS)[number], value: JsonValue): void {
  if (value === null) return;
  if (typeof value !== "string") {
    throw invalid(`Unable to parse '${name}': attempt to access JSON non-string as string`);
  }
  if (!/^[-+]?\d{1,40}$/.test(value)) throw invalid(`Unable to parse '${name}', got: ${value}`);
  const number = BigInt(value.replace("+", ""));
  if (name === "trace_count" && number < -1n) {
    throw invalid(`Unable to parse 'trace_count'. Expecting value >= -1, got:${value}`);
  }
  const [low, high] = name === "trace_count" ? [-1n, INT32_MAX] : [0n, UINT32_MAX];
  if (number < low || number > high) {
    throw invalid(
      `Unable to parse '${name}', value is out of range [ ${low}, ${high} ], got: ${value}`,
    );
  }
  if (number !== BigInt(TRACE_SETTINGS[name])) {
    throw new ServerError(
      "UNSUPPORTED",
      `tracing is not available in this version, can not change '${name}'`,
    );
  }
}

/** `GET /v2/logging` (http.md §8). */
export function getLogSettings({ options }: HttpContext): HttpResponse {
  return jsonResponse(logSettings(options.logSettings));
}

/** `POST /v2/logging`: like trace settings, they cannot be changed yet. */
export function postLogSettings(context: HttpContext, request: HttpRequest): HttpResponse {
  const members: JsonObject = readObject(context, request) ?? new Map();
  const current = logSettings(context.options.logSettings);
  for (const [name, now] of Object.entries(current)) {
    const value = members.get(name) ?? null;
    if (value !== null) checkLogSetting(name, value, now);
  }
  return jsonResponse(current);
}

function logSettings(
  values: HttpContext["options"]["logSettings"],
): Record<string, JsonOutput> {
  return {
    log_file: values.logFile,
    log_info: values.logInfo,
    log_warning: values.logWarning,
    log_error: values.logError,
    log_verbose_level: values.logVerboseLevel,
    log_format: values.logFormat,
  };
}

function checkLogSetting(name: string, value: JsonValue, now: JsonOutput): void {
  if (name === "log_file") {
    throw new ServerError(
      "UNSUPPORTED",
      "log file location can not be updated through network protocol",
    );
  }
  const wanted = typeof value === "bigint" && value >= 0n ? Number(value) : value;
  if (typeof wanted !== typeof now || typeof value === "number") {
    const type = typeof now === "number" ? "unsigned-integer" : typeof now;
    throw invalid(`Unable to parse '${name}': attempt to access JSON non-${type} as ${type}`);
  }
  if (name === "log_format" && wanted !== "default" && wanted !== "ISO8601") {
    throw new ServerError("UNAVAILABLE", `invalid argument for --log_format, got: ${wanted}`);
  }
  if (wanted !== now) {
    throw new ServerError(
      "UNSUPPORTED",
      `log settings can not be changed while the server runs in this version: ${name}`,
    );
  }
}

function invalid(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}
