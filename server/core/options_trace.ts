import { ServerError } from "../../proto/status.ts";

/** What may be traced, apart from nothing. */
export type TraceLevel = "TIMESTAMPS" | "TENSORS";

/** Where traces go: files in the reference's JSON, or spans over OTLP/HTTP. */
export type TraceMode = "triton" | "opentelemetry";

/** The part of a trace setting that can be changed while the server runs. */
export interface TraceValues {
  /** Empty = OFF. */
  readonly levels: readonly TraceLevel[];
  /** Every n-th request is traced; 0 = none. */
  readonly rate: number;
  /** How many requests are still to be traced; -1 = any number. */
  readonly count: number;
  /** Traces per numbered file; 0 = one file for all. */
  readonly logFrequency: number;
}

/** `--trace-config` (cli.md §2.6). */
export interface TraceOptions {
  readonly mode: TraceMode;
  readonly values: TraceValues;
  /** "" = none was given. */
  readonly file: string;
  readonly openTelemetry: OpenTelemetryOptions;
}

/** `--trace-config=opentelemetry,…`. */
export interface OpenTelemetryOptions {
  /** Where OTLP/HTTP requests are posted. */
  readonly url: string;
  /** Attributes of the resource. */
  readonly resource: readonly (readonly [key: string, value: string])[];
  /** Spans that may wait to be exported; more are dropped. */
  readonly maxQueueSize: number;
  readonly scheduleDelayMs: number;
  /** Spans of one request to the collector. */
  readonly maxExportBatchSize: number;
  /** What clients are told, in the order of the command line. */
  readonly shown: readonly (readonly [key: string, value: string])[];
}

/** The defaults of cli.md §2.6. */
export const DEFAULT_TRACE_OPTIONS: TraceOptions = {
  mode: "triton",
  values: { levels: [], rate: 1000, count: -1, logFrequency: 0 },
  file: "",
  openTelemetry: {
    url: "http://localhost:4318/v1/traces",
    resource: [],
    maxQueueSize: 2048,
    scheduleDelayMs: 5000,
    maxExportBatchSize: 512,
    shown: [],
  },
};

/** A change of trace settings: absent members stay, null goes back to what is behind the setting. */
export interface TraceChange {
  /** Level names; unknown ones are ignored. */
  readonly levels?: readonly string[] | null;
  readonly rate?: number | null;
  readonly count?: number | null;
  readonly logFrequency?: number | null;
}

/** A trace setting as clients see it: name → texts, more than one only for `trace_level` and repeated keys. */
export type ShownTraceSetting = readonly (readonly [name: string, values: readonly string[]])[];

/** Wire names of the numbers of a setting. */
export const TRACE_NUMBERS = {
  trace_rate: "rate",
  trace_count: "count",
  log_frequency: "logFrequency",
} as const;

const UINT32_MAX = 4294967295n;
const INT32_MAX = 2147483647n;

/**
 * Reads a number of a trace setting. `gap` stands before a count that is too small: the protocols differ there.
 * @throws ServerError INVALID_ARG with the texts of http.md §7.
 */
export function parseTraceNumber(
  name: keyof typeof TRACE_NUMBERS,
  text: string,
  gap = " ",
): number {
  if (!/^[-+]?\d{1,40}$/.test(text)) throw invalid(`Unable to parse '${name}', got: ${text}`);
  const number = BigInt(text.replace("+", ""));
  if (name === "trace_count" && number < -1n) {
    throw invalid(`Unable to parse 'trace_count'. Expecting value >= -1, got:${gap}${text}`);
  }
  const [low, high] = name === "trace_count" ? [-1n, INT32_MAX] : [0n, UINT32_MAX];
  if (number < low || number > high) {
    throw invalid(
      `Unable to parse '${name}', value is out of range [ ${low}, ${high} ], got: ${text}`,
    );
  }
  return Number(number);
}

/** The refusal of another file (http.md §7). */
export function traceFileError(): ServerError {
  return new ServerError(
    "UNSUPPORTED",
    "trace file location can not be updated through network protocol",
  );
}

function invalid(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}
