import { ServerError } from "../../proto/status.ts";
import {
  DEFAULT_TRACE_OPTIONS,
  type OpenTelemetryOptions,
  type TraceLevel,
  type TraceMode,
  type TraceOptions,
} from "../core/options_trace.ts";
import { parseIntValue } from "./flag_values.ts";
import type { ParsedFlags } from "./flags.ts";

const UINT32_MAX = 4294967295;

/** One `--trace-config`; mode "" = global. */
interface TraceSettingText {
  readonly mode: string;
  readonly key: string;
  readonly value: string;
}

/** Reads an environment variable. */
export type ReadVariable = (name: string) => string | undefined;

/**
 * Reads `--trace-config` and its older spellings, which it wins over (cli.md §2.6, §2.10).
 * @throws ServerError INVALID_ARG with the text to print.
 */
export function readTraceOptions(
  flags: ParsedFlags,
  readVariable: ReadVariable = (name) => Deno.env.get(name),
): TraceOptions {
  const settings = [...deprecatedSettings(flags), ...flags.list("trace-config").map(parseSetting)];
  for (const setting of settings) checkKey(setting);
  const last = (mode: string, key: string) =>
    settings.findLast((setting) => setting.mode === mode && setting.key === key)?.value;
  const number = (mode: string, key: string, fallback: number, low = 0, high = UINT32_MAX) => {
    const text = last(mode, key);
    const name = mode === "" ? key : `${mode},${key}`;
    return text === undefined
      ? fallback
      : readNumber(`--trace-config ${name}`, text, { low, high });
  };
  const { values } = DEFAULT_TRACE_OPTIONS;
  const levels = settings.filter(({ mode, key }) => mode === "" && key === "level");
  return {
    mode: readMode(last("", "mode")),
    values: {
      levels: readLevels(levels.map(({ value }) => value)),
      rate: number("", "rate", values.rate),
      count: number("", "count", values.count, -1, 2147483647),
      logFrequency: number("triton", "log-frequency", values.logFrequency),
    },
    file: last("triton", "file") ?? "",
    openTelemetry: readOpenTelemetry(settings, readVariable),
  };
}

function usage(name: string, message: string): ServerError {
  return new ServerError("INVALID_ARG", `Bad option: "${name}".\n${message}`);
}

const DEPRECATED: readonly (readonly [flag: string, mode: string, key: string])[] = [
  ["trace-file", "triton", "file"],
  ["trace-log-frequency", "triton", "log-frequency"],
  ["trace-level", "", "level"],
  ["trace-rate", "", "rate"],
  ["trace-count", "", "count"],
];

function deprecatedSettings(flags: ParsedFlags): TraceSettingText[] {
  // The levels of the new form replace those of the old one, they are not added.
  const hasLevel = flags.list("trace-config").some((text) => text.startsWith("level="));
  return DEPRECATED.flatMap(([flag, mode, key]) =>
    key === "level" && hasLevel ? [] : flags.list(flag).map((value) => ({ mode, key, value }))
  );
}

function parseSetting(text: string): TraceSettingText {
  const equals = text.indexOf("=");
  const comma = text.slice(0, Math.max(equals, 0)).indexOf(",");
  const mode = text.slice(0, Math.max(comma, 0));
  const key = text.slice(comma + 1, Math.max(equals, 0));
  const value = text.slice(equals + 1);
  const isModeKnown = comma < 0 || mode === "triton" || mode === "opentelemetry";
  if (equals < 0 || key === "" || value === "" || !isModeKnown) {
    throw usage(
      "--trace-config",
      `--trace-config option format is '<trace mode>,<setting>=<value>'. Got ${text}`,
    );
  }
  return { mode, key, value };
}

const KEYS: Readonly<Record<string, readonly string[]>> = {
  "": ["mode", "level", "rate", "count"],
  "triton": ["file", "log-frequency"],
  "opentelemetry": [
    "url",
    "resource",
    "bsp_max_queue_size",
    "bsp_schedule_delay",
    "bsp_max_export_batch_size",
  ],
};

function checkKey({ mode, key }: TraceSettingText): void {
  const known = KEYS[mode]!;
  if (known.includes(key)) return;
  const name = mode === "" ? key : `${mode},${key}`;
  throw usage(
    `--trace-config ${name}`,
    `unknown trace setting '${key}'; expected ${known.join(", ")}`,
  );
}

function readMode(text = "triton"): TraceMode {
  const mode = text.toLowerCase();
  if (mode === "triton" || mode === "opentelemetry") return mode;
  throw usage(
    "--trace-config mode",
    `invalid value for trace mode option: ${text}. Available options are "triton" and ` +
      `"opentelemetry"`,
  );
}

/** OFF wins over everything. */
function readLevels(texts: readonly string[]): readonly TraceLevel[] {
  const levels = texts.map((text) => {
    const level = LEVEL_WORDS[text.toLowerCase()];
    if (level !== undefined) return level;
    throw usage("--trace-config level", `invalid value for trace level option: ${text}`);
  });
  if (levels.includes("OFF")) return [];
  return (["TIMESTAMPS", "TENSORS"] as const).filter((level) => levels.includes(level));
}

const LEVEL_WORDS: Readonly<Record<string, TraceLevel | "OFF">> = {
  off: "OFF",
  false: "OFF",
  timestamps: "TIMESTAMPS",
  true: "TIMESTAMPS",
  on: "TIMESTAMPS",
  min: "TIMESTAMPS",
  max: "TIMESTAMPS",
  tensors: "TENSORS",
};

function readNumber(
  name: string,
  text: string,
  { low, high }: { readonly low: number; readonly high: number },
): number {
  let value: number;
  try {
    value = parseIntValue(text, high);
  } catch (reason) {
    throw usage(name, ServerError.from(reason).message);
  }
  if (value >= low && value <= high) return value;
  throw usage(
    name,
    `Provided option value is out of bound. Got ${text}, expected ${low} to ${high}`,
  );
}

const BATCH_SETTINGS = [
  ["bsp_max_queue_size", "OTEL_BSP_MAX_QUEUE_SIZE", "maxQueueSize"],
  ["bsp_schedule_delay", "OTEL_BSP_SCHEDULE_DELAY", "scheduleDelayMs"],
  ["bsp_max_export_batch_size", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "maxExportBatchSize"],
] as const;

function readOpenTelemetry(
  settings: readonly TraceSettingText[],
  readVariable: ReadVariable,
): OpenTelemetryOptions {
  const own = settings.filter(({ mode }) => mode === "opentelemetry");
  const shown = own.filter(({ key }) => !key.startsWith("bsp_")).map(({ key, value }) =>
    [key, value] as const
  );
  const fallback = DEFAULT_TRACE_OPTIONS.openTelemetry;
  const numbers = BATCH_SETTINGS.map(([key, variable, member]) => {
    const text = own.findLast((setting) => setting.key === key)?.value;
    const [name, given] = text === undefined
      ? [variable, readVariable(variable)]
      : [`--trace-config opentelemetry,${key}`, text];
    const low = member === "scheduleDelayMs" ? 0 : 1;
    const value = given === undefined || given === ""
      ? fallback[member]
      : readNumber(name, given, { low, high: 2147483647 });
    return [member, key, value] as const;
  });
  return {
    ...fallback,
    ...Object.fromEntries(numbers.map(([member, , value]) => [member, value])),
    url: collectorUrl(own.findLast(({ key }) => key === "url")?.value ?? fallback.url),
    resource: own.filter(({ key }) => key === "resource").map(({ value }) => readPair(value)),
    shown: [...shown, ...numbers.map(([, key, value]) => [key, String(value)] as const)],
  };
}

function readPair(text: string): readonly [string, string] {
  const cut = text.indexOf("=");
  if (cut > 0) return [text.slice(0, cut), text.slice(cut + 1)];
  throw usage("--trace-config opentelemetry,resource", `expected <key>=<value>. Got ${text}`);
}

/** The reference takes addresses without a scheme as well. */
function collectorUrl(text: string): string {
  const url = /^https?:\/\//i.test(text) ? text : `http://${text}`;
  if (URL.canParse(url)) return url;
  throw usage("--trace-config opentelemetry,url", `expected an http or https address. Got ${text}`);
}
