import { type DescEnum, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { editDistance } from "./edit_distance.ts";
import { ModelConfigSchema } from "./gen/model_config_pb.ts";
import type { Token } from "./model_config_tokens.ts";

const STRAY_MARK_HINTS: Readonly<Record<string, string>> = {
  "-": "lists are written name [ …, … ], not as in YAML",
  ",": "one separator is enough",
  ";": "one separator is enough",
  "}": "nothing is open that it could close",
  "]": "nothing is open that it could close",
  ":": "the field name is missing",
};

/** Names people bring from elsewhere, in lower case without `type_` → datatype of the configuration. */
const DATATYPE_ALIASES: Readonly<Record<string, string>> = {
  boolean: "TYPE_BOOL",
  byte: "TYPE_UINT8",
  int: "TYPE_INT32",
  integer: "TYPE_INT32",
  long: "TYPE_INT64",
  half: "TYPE_FP16",
  float: "TYPE_FP32",
  float16: "TYPE_FP16",
  float32: "TYPE_FP32",
  float64: "TYPE_FP64",
  double: "TYPE_FP64",
  bfloat16: "TYPE_BF16",
  bytes: "TYPE_STRING",
  str: "TYPE_STRING",
  utf8: "TYPE_STRING",
};

/** Aliases of one meaning only: `int` and `integer` may have 32 or 64 bits. */
const CLEAR_ALIASES: ReadonlySet<string> = new Set(
  Object.keys(DATATYPE_ALIASES).filter((alias) => !/^(?:int|integer|byte)$/.test(alias)),
);

/** Other words for fields, which mean nothing else. */
const FIELD_ALIASES: ReadonlyMap<string, string> = new Map([
  ["dtype", "data_type"],
  ["type", "data_type"],
  ["max_batch", "max_batch_size"],
  ["dimensions", "dims"],
  ["model", "model_name"],
  ["file", "label_filename"],
  ["label_file", "label_filename"],
  ["model_filename", "default_model_filename"],
  ["instances", "instance_group"],
  ["inputs", "input"],
  ["outputs", "output"],
  ["steps", "step"],
  ["params", "parameters"],
]);

/** So many letters may be wrong in a name before it is only like another one. */
const TYPO_DISTANCE_MAX = 2;

/** Below this similarity (0 … 1) a name is no suggestion. */
const SIMILARITY_MIN = 0.5;
/** Names longer than this are not compared: nobody misspells that much. */
const COMPARED_LENGTH_MAX = 100;

/** `camelCase` and `kebab-case` as `snake_case`. */
function toSnakeCase(name: string): string {
  return name.replace(/([a-z0-9])([A-Z])/g, "$1_$2").replaceAll("-", "_").toLowerCase();
}

/** The candidate most like the name, if any is like it. */
function nearestName(name: string, candidates: readonly string[]): string | undefined {
  if (name.length > COMPARED_LENGTH_MAX) return undefined;
  const wanted = toSnakeCase(name);
  let best: string | undefined;
  let bestScore = SIMILARITY_MIN;
  for (const candidate of candidates) {
    const score = similarity(wanted, candidate.toLowerCase());
    if (score > bestScore) {
      best = candidate;
      bestScore = score;
    }
  }
  return best;
}

/** The one candidate that a name with a typing mistake can mean; undefined when two come into question. */
export function typoOf(name: string, candidates: readonly string[]): string | undefined {
  if (name.length > COMPARED_LENGTH_MAX) return undefined;
  const wanted = toSnakeCase(name);
  const same = candidates.filter((candidate) => candidate.toLowerCase() === wanted);
  if (same.length === 1) return same[0];
  const allowed = Math.min(TYPO_DISTANCE_MAX, Math.floor(wanted.length / 3));
  const scored = candidates
    .map((name) => ({ name, distance: editDistance(wanted, name.toLowerCase()) }))
    .sort((left, right) => left.distance - right.distance);
  const [best, second] = scored;
  if (best === undefined || best.distance > allowed) return undefined;
  return second !== undefined && second.distance <= allowed ? undefined : best.name;
}

/** The value that is surely meant by a text that an enum does not have. */
export function enumValueFor(value: string, descriptor: DescEnum): string | undefined {
  const names = descriptor.values.map((entry) => entry.name);
  const bare = value.toLowerCase().replace(/^(?:type|kind)_/, "");
  if (descriptor.name === "DataType" && CLEAR_ALIASES.has(bare)) return DATATYPE_ALIASES[bare];
  const exact = names.filter((name) => name.toLowerCase() === value.toLowerCase());
  const suffixed = names.filter((name) => name.toLowerCase().endsWith(`_${bare}`));
  if (exact.length === 1) return exact[0];
  return suffixed.length === 1 ? suffixed[0] : typoOf(value, names);
}

/** The field that is surely meant by a name that a message does not have. */
export function fieldNameFor(name: string, message: DescMessage): string | undefined {
  const names = message.fields.map((field) => field.name);
  const alias = FIELD_ALIASES.get(toSnakeCase(name));
  return alias !== undefined && names.includes(alias) ? alias : typoOf(name, names);
}

/** Hint for a value that an enum does not have. */
export function hintForEnumValue(value: string, descriptor: DescEnum): string {
  const names = descriptor.values.map((entry) => entry.name);
  const bare = value.toLowerCase().replace(/^type_/, "");
  const alias = descriptor.name === "DataType" ? DATATYPE_ALIASES[bare] : undefined;
  const suffixed = names.find((name) => name.toLowerCase().endsWith(`_${bare}`));
  const nearest = alias ?? suffixed ?? nearestName(value, names);
  return nearest === undefined ? "" : `did you mean ${nearest}?`;
}

/** Hint for a field name that a message does not have. */
export function hintForField(name: string, message: DescMessage): string {
  const snake = toSnakeCase(name);
  const names = message.fields.map((field) => field.name);
  const sure = fieldNameFor(name, message);
  if (sure !== undefined) return `did you mean ${sure}?`;
  if (snake === "shape" && names.includes("dims")) {
    return "did you mean dims? They do not count the batch dimension";
  }
  const nearest = nearestName(name, names);
  const isTypo = nearest !== undefined && editDistance(snake, nearest) <= 2;
  const path = isTypo ? undefined : pathOfField(snake);
  if (path !== undefined) return `${snake} belongs to ${path}`;
  if (nearest !== undefined) return `did you mean ${nearest}?`;
  return message.fields.length > 12 ? "" : `${message.name} has ${names.join(", ") || "no fields"}`;
}

/** Place in the configuration of the message that has a field of this name, by the shortest path. */
function pathOfField(name: string): string | undefined {
  let level: { message: DescMessage; path: string }[] = [{ message: ModelConfigSchema, path: "" }];
  while (level.length > 0) {
    const next: typeof level = [];
    for (const { message, path } of level) {
      if (message.fields.some((field) => field.name === name)) {
        return path === "" ? "the top level of the configuration" : path;
      }
      for (const field of message.fields) {
        const inner = field.message;
        if (inner === undefined) continue;
        next.push({ message: inner, path: path === "" ? field.name : `${path}.${field.name}` });
      }
    }
    level = next;
  }
  return undefined;
}

function similarity(left: string, right: string): number {
  const longest = Math.max(left.length, right.length, 1);
  const letters = 1 - editDistance(left, right) / longest;
  const leftWords = new Set(left.split("_"));
  const rightWords = new Set(right.split("_"));
  const shared = leftWords.intersection(rightWords).size;
  const words = leftWords.size > 1 ? shared / leftWords.union(rightWords).size : 0;
  return Math.max(letters, words);
}

/** Hint for something that stands where a message belongs. */
export function hintForMessage(message: DescMessage, name: string): string {
  const only = message.fields.length === 1 ? message.fields[0] : undefined;
  if (only === undefined) return `messages are written ${name} { … }`;
  const value = only.scalar === ScalarType.STRING ? `"…"` : "…";
  return `this is written ${name} { ${only.name}: ${value} }`;
}

/** Hint for a token that stands where a field name belongs. */
export function hintForStrayToken(token: Token): string {
  switch (token.kind) {
    case "number":
      return "fields are given by name, several values in brackets: [ …, … ]";
    case "template":
      return "this looks like a template that was not filled in";
    case "string":
      return "field names stand without quotes";
    case "broken":
      return "a quote stands alone";
    case "mark":
      return STRAY_MARK_HINTS[token.text] ?? "";
    default:
      return token.text === "/" ? "comments begin with #" : "";
  }
}
