import {
  create,
  type DescEnum,
  type DescField,
  type DescMessage,
  fromJson,
  type JsonValue,
  ScalarType,
} from "@bufbuild/protobuf";
import { reflect, type ReflectMessage } from "@bufbuild/protobuf/reflect";
import { type ModelConfig, ModelConfigSchema } from "./gen/model_config_pb.ts";
import { hintForEnumValue, hintForField } from "./model_config_hint.ts";
import type { ConfigIssue } from "./model_config_issue.ts";
import { parseModelConfigJsonText } from "./model_config_json_text.ts";

/** 64-bit fields that the reference leaves as strings (config.md §7.3), by message and field. */
const INT64_AS_STRING: ReadonlySet<string> = new Set([
  "inference.ModelSequenceBatching.InitialState.dims",
  "inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim",
  "inference.ModelInstanceGroup.SecondaryDevice.device_id",
]);

/**
 * The configuration as the reference prints it: original field names in declaration order, every scalar, list and map
 * even when it has its default, messages and oneof members only when set.
 */
export function formatModelConfigJson(config: ModelConfig): string {
  return formatMessage(reflect(ModelConfigSchema, config));
}

/**
 * Reads the JSON form of a configuration, as load requests carry it. Field names in snake or camel case, enum names
 * in any case or as numbers, 64-bit numbers also as strings; keys without quotes and the like as
 * {@linkcode parseModelConfigJsonText} tells.
 */
export function parseModelConfigJson(
  text: string,
): { config: ModelConfig; issues: readonly ConfigIssue[] } {
  const config = create(ModelConfigSchema);
  const issues: ConfigIssue[] = [];
  try {
    const json = parseModelConfigJsonText(text);
    const checked = checkedMessage(json, ModelConfigSchema, { path: "", issues });
    if (issues.length > 0) return { config, issues };
    return { config: fromJson(ModelConfigSchema, checked), issues };
  } catch (reason) {
    const message = reason instanceof Error ? reason.message : String(reason);
    return { config, issues: [{ path: "", message }] };
  }
}

function formatMessage(message: ReflectMessage): string {
  const members: string[] = [];
  // The reference prints scalar members of a oneof behind all others.
  const isLast = (field: DescField) => field.oneof !== undefined && field.message === undefined;
  const fields = message.fields.toSorted((a, b) => Number(isLast(a)) - Number(isLast(b)));
  for (const field of fields) {
    const isOptional = field.oneof !== undefined || field.fieldKind === "message";
    if (isOptional && !message.isSet(field)) continue;
    members.push(`${JSON.stringify(field.name)}:${formatField(message, field)}`);
  }
  return `{${members.join(",")}}`;
}

function formatField(message: ReflectMessage, field: DescField): string {
  if (field.fieldKind === "message") return formatMessage(message.get(field));
  if (field.fieldKind === "list") {
    const elements = [...message.get(field)].map((element) => formatElement(element, field));
    return `[${elements.join(",")}]`;
  }
  if (field.fieldKind === "map") {
    const entries = [...message.get(field)].map(([key, value]) =>
      `${JSON.stringify(String(key))}:${formatElement(value, field)}`
    );
    return `{${entries.join(",")}}`;
  }
  return formatElement(message.get(field), field);
}

function formatElement(value: unknown, field: DescField): string {
  if (field.message !== undefined) return formatMessage(value as ReflectMessage);
  if (field.enum !== undefined) {
    const name = field.enum.values.find((entry) => entry.number === value)?.name;
    return name === undefined ? String(value) : JSON.stringify(name);
  }
  if (typeof value === "bigint") {
    const isString = INT64_AS_STRING.has(`${field.parent?.typeName}.${field.name}`);
    return isString ? `"${value}"` : String(value);
  }
  if (typeof value === "number") return formatNumber(value, field);
  return JSON.stringify(value);
}

function formatNumber(value: number, field: DescField): string {
  if (!Number.isFinite(value)) return JSON.stringify(String(value));
  return field.scalar === ScalarType.FLOAT ? shortestFloat(value) : String(value);
}

/** The shortest decimal that gives back the same 32-bit float. */
function shortestFloat(value: number): string {
  for (let digits = 1; digits < 9; digits++) {
    const candidate = Number(value.toPrecision(digits));
    if (Math.fround(candidate) === value) return String(candidate);
  }
  return String(Number(value.toPrecision(9)));
}

interface JsonScan {
  readonly path: string;
  readonly issues: ConfigIssue[];
}

/** The same JSON with enum names as the schema writes them; reports names that nobody knows. */
function checkedMessage(json: unknown, message: DescMessage, scan: JsonScan): JsonValue {
  if (typeof json !== "object" || json === null || Array.isArray(json)) {
    if (json === null && scan.path !== "") return null;
    scan.issues.push({ path: scan.path, message: `object expected, got ${shown(json)}` });
    return {};
  }
  const checked: Record<string, JsonValue> = {};
  for (const [key, value] of Object.entries(json)) {
    const field = message.fields.find(({ name, jsonName }) => name === key || jsonName === key);
    const path = scan.path === "" ? key : `${scan.path}.${key}`;
    if (field === undefined) {
      const hint = hintForField(key, message);
      const text = `unknown field, ${message.name} has no field ${shown(key)}`;
      scan.issues.push({ path, message: text, ...(hint === "" ? {} : { hint }) });
    } else checked[key] = checkedField(value, field, { ...scan, path });
  }
  return checked;
}

function checkedField(json: unknown, field: DescField, scan: JsonScan): JsonValue {
  if (field.fieldKind === "list" && json !== null) {
    // The reference takes a single element for a list of one.
    const elements: unknown[] = Array.isArray(json) ? json : [json];
    return elements.map((element, index) =>
      checkedElement(element, field, { ...scan, path: `${scan.path}[${index}]` })
    );
  }
  if (field.fieldKind === "map" && typeof json === "object" && json !== null) {
    const entries = Object.entries(json).map(([key, value]): [string, JsonValue] => {
      const path = `${scan.path}[${JSON.stringify(key)}]`;
      return [key, checkedElement(value, field, { ...scan, path })];
    });
    return Object.fromEntries(entries);
  }
  if (field.fieldKind === "list" || field.fieldKind === "map") return json as JsonValue;
  return checkedElement(json, field, scan);
}

function checkedElement(json: unknown, field: DescField, scan: JsonScan): JsonValue {
  if (field.message !== undefined) return checkedMessage(json, field.message, scan);
  if (field.enum !== undefined) return checkedEnum(json, field.enum, scan);
  if (field.scalar === ScalarType.BOOL && (json === "true" || json === "false")) {
    return json === "true";
  }
  return json as JsonValue;
}

function checkedEnum(json: unknown, descriptor: DescEnum, scan: JsonScan): JsonValue {
  const names = descriptor.values.map((entry) => entry.name);
  if (typeof json === "string" && names.includes(json.toUpperCase())) return json.toUpperCase();
  if (typeof json === "number" && descriptor.values.some((entry) => entry.number === json)) {
    return json;
  }
  const hint = typeof json === "string" ? hintForEnumValue(json, descriptor) : "";
  scan.issues.push({
    path: scan.path,
    message: `one of ${names.join(", ")} expected, got ${shown(json)}`,
    ...(hint === "" ? {} : { hint }),
  });
  return 0;
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}
