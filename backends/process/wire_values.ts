import type { ParameterValue } from "../../proto/infer.ts";

const TEXT_LENGTH_MAX = 64 * 1024;

/** A number that JSON may not hold exactly, or text. */
export type WireNumber = number | string | { readonly n: string };

/** The text of an error; models may make texts of any length, and no client takes them all. */
export function clipText(text: string): string {
  return text.length <= TEXT_LENGTH_MAX ? text : `${text.slice(0, TEXT_LENGTH_MAX)}…`;
}

/** JSON text of parameters. Numbers without a point or exponent are integers of any size. */
export function readParameters(
  text: unknown,
): Readonly<Record<string, ParameterValue>> | undefined {
  if (text === undefined || text === "" || text === "{}") return undefined;
  if (typeof text !== "string") throw new RangeError("Expected parameters as JSON text");
  const parsed: unknown = JSON.parse(text, reviveNumber as Parameters<typeof JSON.parse>[1]);
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) {
    throw new RangeError("Expected parameters to be a JSON object");
  }
  for (const [key, value] of Object.entries(parsed)) {
    if (!["boolean", "bigint", "number", "string"].includes(typeof value)) {
      throw new RangeError(`Parameter '${key}' is no bool, int, double or string`);
    }
  }
  return parsed as Record<string, ParameterValue>;
}

/** JSON text of parameters, with a point in every double. */
export function formatParameters(parameters: Readonly<Record<string, ParameterValue>>): string {
  const members: string[] = [];
  for (const key in parameters) {
    members.push(`${JSON.stringify(key)}:${formatValue(parameters[key]!)}`);
  }
  return `{${members.join(",")}}`;
}

/** A number that may be beyond what JSON holds exactly. */
export function wireNumber(value: bigint | string): WireNumber {
  if (typeof value === "string") return value;
  return value <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(value) : { n: String(value) };
}

/** What {@linkcode wireNumber} made of a number; undefined for anything else. */
export function readWireNumber(value: unknown): bigint | undefined {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 0) return BigInt(value);
  const digits = (value as { readonly n?: unknown } | null | undefined)?.n;
  return typeof digits === "string" && /^\d{1,20}$/.test(digits) ? BigInt(digits) : undefined;
}

function formatValue(value: ParameterValue): string {
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "number") return JSON.stringify(value);
  const text = String(value);
  return /^-?\d+$/.test(text) ? `${text}.0` : text;
}

/** The third argument has the text of a number; the types of the language do not know it yet. */
function reviveNumber(_key: string, value: unknown, context: { readonly source: string }): unknown {
  if (typeof value !== "number") return value;
  return /[.eE]/.test(context.source) ? value : BigInt(context.source);
}
