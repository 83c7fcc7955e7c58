import { enterObjectField, readBooleanField, readUnsignedField } from "./http_codec_fields.ts";
import type { ParameterValue } from "./infer.ts";
import type { JsonReader } from "./json_reader.ts";
import { readJsonValue, wrongType } from "./json_value.ts";
import { ServerError } from "./status.ts";

/** Keys with a meaning of their own, which no header may set. */
const RESERVED_KEYS: ReadonlySet<string> = new Set([
  "sequence_id",
  "sequence_start",
  "sequence_end",
  "priority",
  "timeout",
  "headers",
  "binary_data_output",
]);
const RESERVED_PREFIX = "triton_";
/** More parameters than this are refused; a request has a handful. */
const PARAMETERS_MAX = 1024;

/** What the `parameters` of a request say; the defaults stand for "not given". */
export interface RequestParameters {
  correlationId: bigint | string;
  sequenceStart: boolean;
  sequenceEnd: boolean;
  priority: number;
  timeoutUs: number;
  isBinaryDefault: boolean;
  custom: Record<string, ParameterValue>;
}

/** Parameters of a request that gives none. */
export function noParameters(): RequestParameters {
  return {
    correlationId: 0n,
    sequenceStart: false,
    sequenceEnd: false,
    priority: 0,
    timeoutUs: 0,
    isBinaryDefault: false,
    custom: {},
  };
}

/** Reads the `parameters` object of a request (http.md §9.4) into `parameters`. */
export function readRequestParameters(reader: JsonReader, parameters: RequestParameters): void {
  const seen = new Set<string>();
  let key = enterObjectField(reader, "parameters");
  for (; key !== undefined; key = reader.nextKey()) {
    if (seen.has(key)) {
      reader.skipValue();
      continue;
    }
    seen.add(key);
    if (seen.size > PARAMETERS_MAX) {
      throw new ServerError(
        "INVALID_ARG",
        `request has more than ${PARAMETERS_MAX} parameters`,
      );
    }
    readParameter(reader, key, parameters);
  }
}

function readParameter(reader: JsonReader, key: string, parameters: RequestParameters): void {
  switch (key) {
    case "sequence_id":
      parameters.correlationId = readCorrelationId(reader);
      return;
    case "sequence_start":
      parameters.sequenceStart = readBooleanField(reader, key);
      return;
    case "sequence_end":
      parameters.sequenceEnd = readBooleanField(reader, key);
      return;
    case "priority":
      parameters.priority = Number(readUnsignedField(reader, key));
      return;
    case "timeout":
      parameters.timeoutUs = Number(readUnsignedField(reader, key));
      return;
    case "binary_data_output":
      parameters.isBinaryDefault = readBooleanField(reader, key);
      return;
    default:
      setParameter(parameters.custom, key, readCustomParameter(reader, key));
  }
}

/** Sets a parameter under any name, `__proto__` included, as a member of its own. */
export function setParameter(
  parameters: Record<string, ParameterValue>,
  key: string,
  value: ParameterValue,
): void {
  if (key !== "__proto__") {
    parameters[key] = value;
    return;
  }
  Object.defineProperty(parameters, key, {
    value,
    writable: true,
    enumerable: true,
    configurable: true,
  });
}

function readCorrelationId(reader: JsonReader): bigint | string {
  const kind = reader.kind();
  if (kind === "string") return reader.readString();
  if (kind === "number") return readUnsignedField(reader, "sequence_id");
  reader.skipValue();
  throw wrongType("sequence_id", "unsigned-integer");
}

/** Reads a parameter that has no meaning for the server itself. */
export function readCustomParameter(reader: JsonReader, key: string): ParameterValue {
  if (key.startsWith(RESERVED_PREFIX)) {
    throw new ServerError(
      "INVALID_ARG",
      "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.",
    );
  }
  const value = readJsonValue(reader);
  if (typeof value === "bigint") {
    // What int64 does not hold is passed on as a double.
    return BigInt.asIntN(64, value) === value ? value : Number(value);
  }
  if (typeof value === "string" || typeof value === "boolean" || typeof value === "number") {
    return value;
  }
  throw new ServerError(
    "INVALID_ARG",
    `parameter '${key}' has invalid type. It should be either 'int', 'bool', or 'string'.`,
  );
}

/**
 * Adds the headers whose name matches `pattern` as string parameters (http.md §9.4).
 * @throws ServerError INVALID_ARG when such a header has a reserved name.
 */
export function forwardHeaders(
  headers: Iterable<readonly [string, string]>,
  pattern: RegExp,
  parameters: Record<string, ParameterValue>,
): void {
  for (const [name, value] of headers) {
    if (!pattern.test(name)) continue;
    checkForwardable(name);
    setParameter(parameters, name, value);
  }
}

/**
 * Checks a header, or metadata of gRPC, that is to become a parameter (http.md §9.4).
 * @throws ServerError INVALID_ARG when its name has a meaning of its own.
 */
export function checkForwardable(name: string): void {
  const lower = name.toLowerCase();
  if (!RESERVED_KEYS.has(lower) && !lower.startsWith(RESERVED_PREFIX)) return;
  throw new ServerError(
    "INVALID_ARG",
    `Header '${name}' is reserved for Triton usage and cannot be forwarded.`,
  );
}
