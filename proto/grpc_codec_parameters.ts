import type { WireReader } from "./grpc_codec_wire.ts";
import type { ParameterValue, SharedMemoryReference } from "./infer.ts";
import { ServerError } from "./status.ts";

/** Which member of the oneof of `InferParameter` was set. */
export type ParameterKind = "none" | "bool" | "int64" | "string" | "double" | "uint64";

/** One `InferParameter` as it was sent. */
export interface InferParameterMessage {
  readonly kind: ParameterKind;
  readonly value: ParameterValue;
}

/** A `map<string, InferParameter>`; absent maps are undefined. */
export type ParameterMap = Map<string, InferParameterMessage>;

/** Most parameters of a request, an input or an output. */
export const MAX_PARAMETERS = 1024;

const MAX_CORRELATION_ID_BYTES = 128;
const RESERVED_PREFIX = "triton_";
const EMPTY_FINAL_KEY = "triton_enable_empty_final_response";
const OWN_KEYS: ReadonlySet<string> = new Set([
  "sequence_id",
  "sequence_start",
  "sequence_end",
  "priority",
  "timeout",
]);

/** What the reserved request parameters say, and the custom ones. */
export interface RequestParameters {
  readonly correlationId: bigint | string;
  readonly sequenceStart: boolean;
  readonly sequenceEnd: boolean;
  readonly priority: number;
  readonly timeoutUs: number;
  readonly enableEmptyFinalResponse: boolean;
  readonly custom: Readonly<Record<string, ParameterValue>>;
}

const NO_CUSTOM: Readonly<Record<string, ParameterValue>> = Object.freeze({});

/** The parameters of a request that has none. */
export const NO_PARAMETERS: RequestParameters = Object.freeze({
  correlationId: 0n,
  sequenceStart: false,
  sequenceEnd: false,
  priority: 0,
  timeoutUs: 0,
  enableEmptyFinalResponse: false,
  custom: NO_CUSTOM,
});

/** True when the client wants a message for a final flag that comes alone (grpc.md §4). */
export function wantsEmptyFinal(map: ParameterMap | undefined): boolean {
  return map?.get(EMPTY_FINAL_KEY)?.value === true;
}

/** Reads one entry of a parameter map into `map`; a later entry of the same key wins. */
export function readParameterEntry(
  reader: WireReader,
  map: ParameterMap | undefined,
): ParameterMap {
  const entry = reader.message();
  let key = "";
  let parameter: InferParameterMessage = { kind: "none", value: "" };
  while (!entry.done) {
    const tag = entry.tag();
    if (tag === 10) key = entry.string();
    else if (tag === 18) parameter = readParameter(entry.message(), parameter);
    else entry.skip(tag);
  }
  const parameters = map ?? new Map<string, InferParameterMessage>();
  parameters.set(key, parameter);
  if (parameters.size > MAX_PARAMETERS) {
    throw new ServerError(
      "INVALID_ARG",
      `inference request has more parameters than the ${MAX_PARAMETERS} allowed`,
    );
  }
  return parameters;
}

function readParameter(
  reader: WireReader,
  before: InferParameterMessage,
): InferParameterMessage {
  let parameter = before;
  while (!reader.done) {
    const tag = reader.tag();
    if (tag === 8) parameter = { kind: "bool", value: reader.bool() };
    else if (tag === 16) parameter = { kind: "int64", value: reader.int64Exact() };
    else if (tag === 26) parameter = { kind: "string", value: reader.string() };
    else if (tag === 33) parameter = { kind: "double", value: reader.double() };
    else if (tag === 40) parameter = { kind: "uint64", value: reader.uint64Exact() };
    else reader.skip(tag);
  }
  return parameter;
}

/** True for names that have a meaning of their own as request parameters. */
function isReservedParameter(name: string): boolean {
  return OWN_KEYS.has(name) || name.startsWith(RESERVED_PREFIX);
}

/**
 * Checks and sorts the request parameters (grpc.md §3.1). `forwarded` are metadata that become string parameters;
 * they win over parameters of the same name.
 */
export function checkRequestParameters(
  map: ParameterMap | undefined,
  forwarded: readonly (readonly [string, string])[],
): RequestParameters {
  if (map === undefined && forwarded.length === 0) return NO_PARAMETERS;
  // No prototype: a client may name a parameter "__proto__".
  const custom: Record<string, ParameterValue> = Object.create(null);
  const result = { ...NO_PARAMETERS, custom };
  for (const [key, parameter] of map ?? []) {
    if (key === "sequence_id") result.correlationId = correlationId(parameter);
    else if (key === "sequence_start") result.sequenceStart = boolParameter(key, parameter);
    else if (key === "sequence_end") result.sequenceEnd = boolParameter(key, parameter);
    else if (key === "priority") result.priority = priority(parameter);
    else if (key === "timeout") result.timeoutUs = timeoutUs(parameter);
    else if (key === EMPTY_FINAL_KEY) {
      result.enableEmptyFinalResponse = boolParameter(key, parameter);
    } else custom[key] = customParameter(key, parameter);
  }
  for (const [key, value] of forwarded) {
    if (!isReservedParameter(key)) custom[key] = value;
  }
  return result;
}

function invalidKind(key: string, expected: string): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `invalid value type for '${key}' parameter, expected ${expected}.`,
  );
}

function boolParameter(key: string, parameter: InferParameterMessage): boolean {
  if (typeof parameter.value !== "boolean") throw invalidKind(key, "bool_param");
  return parameter.value;
}

function correlationId(parameter: InferParameterMessage): bigint | string {
  const { kind, value } = parameter;
  if (kind === "int64" && typeof value === "bigint") return BigInt.asUintN(64, value);
  if (kind !== "string" || typeof value !== "string") {
    throw invalidKind("sequence_id", "int64_param or string_param");
  }
  if (new TextEncoder().encode(value).length > MAX_CORRELATION_ID_BYTES) {
    throw new ServerError(
      "UNSUPPORTED",
      `string correlation ID cannot be longer than ${MAX_CORRELATION_ID_BYTES} characters`,
    );
  }
  return value;
}

function priority(parameter: InferParameterMessage): number {
  const { value } = parameter;
  if (typeof value !== "bigint") throw invalidKind("priority", "int64_param or uint64_param");
  if (value < 0n) {
    throw new ServerError("INVALID_ARG", "invalid value for 'priority', expected value >= 0.");
  }
  return Number(value);
}

function timeoutUs(parameter: InferParameterMessage): number {
  const { kind, value } = parameter;
  if (kind !== "int64" || typeof value !== "bigint") throw invalidKind("timeout", "int64_param");
  return Number(BigInt.asUintN(64, value));
}

function customParameter(key: string, parameter: InferParameterMessage): ParameterValue {
  if (key.startsWith(RESERVED_PREFIX)) {
    throw new ServerError(
      "INVALID_ARG",
      "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following " +
        `keys starting with 'triton_' are allowed: ${EMPTY_FINAL_KEY}`,
    );
  }
  if (parameter.kind === "none" || parameter.kind === "uint64") {
    throw invalidKind(key, "int64_param, bool_param, or string_param");
  }
  return parameter.value;
}

/** What the parameters of a requested output say. */
export interface OutputParameters {
  readonly classificationCount: number;
  readonly sharedMemory: SharedMemoryReference | undefined;
}

/** Reads the three shared-memory parameters of an input or output (grpc.md §3.2); undefined when none is there. */
export function sharedMemoryParameters(
  map: ParameterMap,
  tensor: string,
): SharedMemoryReference | undefined {
  const region = map.get("shared_memory_region");
  const offset = shmInteger(map, "shared_memory_offset", tensor);
  const byteSize = shmInteger(map, "shared_memory_byte_size", tensor);
  if (region === undefined) {
    const orphan = offset !== undefined
      ? "shared_memory_offset"
      : byteSize !== undefined
      ? "shared_memory_byte_size"
      : undefined;
    if (orphan === undefined) return undefined;
    throw new ServerError(
      "INVALID_ARG",
      `'${orphan}' can not be specified without 'shared_memory_region' parameter for tensor '${tensor}'`,
    );
  }
  if (region.kind !== "string" || typeof region.value !== "string") {
    throw new ServerError(
      "INVALID_ARG",
      `invalid value type for 'shared_memory_region' parameter for tensor '${tensor}', expected string_param.`,
    );
  }
  if (byteSize === undefined) {
    throw new ServerError(
      "INVALID_ARG",
      "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter " +
        `for tensor '${tensor}'`,
    );
  }
  return { region: region.value, offset: offset ?? 0, byteSize };
}

function shmInteger(map: ParameterMap, key: string, tensor: string): number | undefined {
  const parameter = map.get(key);
  if (parameter === undefined) return undefined;
  if (parameter.kind !== "int64") {
    throw new ServerError(
      "INVALID_ARG",
      `invalid value type for '${key}' parameter for tensor '${tensor}', expected int64_param.`,
    );
  }
  const value = Number(parameter.value);
  if (value < 0) {
    throw new ServerError(
      "INVALID_ARG",
      `invalid value for '${key}' parameter for tensor '${tensor}', got: ${parameter.value}`,
    );
  }
  // What no double holds exactly is behind the end of every region, and refused as that.
  return Math.min(value, Number.MAX_SAFE_INTEGER);
}

/** Checks the parameters of a requested output (grpc.md §3.3); unknown ones are ignored. */
export function checkOutputParameters(map: ParameterMap, output: string): OutputParameters {
  const sharedMemory = sharedMemoryParameters(map, output);
  const classification = map.get("classification");
  if (classification === undefined) return { classificationCount: 0, sharedMemory };
  if (sharedMemory !== undefined) {
    throw new ServerError(
      "INVALID_ARG",
      "output can't set both 'shared_memory_region' and 'classification'",
    );
  }
  if (classification.kind !== "int64") {
    throw new ServerError(
      "INVALID_ARG",
      "invalid value type for 'classification' parameter, expected int64_param",
    );
  }
  const count = Number(classification.value);
  if (count <= 0) {
    throw new ServerError(
      "INVALID_ARG",
      "invalid value for 'classification' parameter, expected >= 0",
    );
  }
  return { classificationCount: Math.min(count, Number.MAX_SAFE_INTEGER), sharedMemory };
}
