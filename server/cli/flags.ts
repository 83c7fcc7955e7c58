import { ServerError } from "../../proto/status.ts";
import { type FlagSpec, SERVED_FLAGS } from "./flag_table.ts";
import { UNSERVED_FLAGS } from "./flag_table_unserved.ts";
import { parseBoolValue, parseFloatValue, parseIntValue } from "./flag_values.ts";
import { nearestWord } from "./nearest_word.ts";

/** Every flag of the server. */
export const FLAGS: readonly FlagSpec[] = [...SERVED_FLAGS, ...UNSERVED_FLAGS];

/** A command line, checked flag by flag. Asking for a flag that is not in the table is a TypeError. */
export interface ParsedFlags {
  /** Was the flag given? */
  given(name: string): boolean;
  bool(name: string): boolean;
  number(name: string): number;
  /** Last value given, or the default, or "". */
  text(name: string): string;
  /** All values in order. */
  list(name: string): readonly string[];
  /** What the user should know: deprecated flags and flags without effect. */
  readonly notes: readonly string[];
}

/**
 * Reads a command line (cli.md §1).
 * @throws ServerError INVALID_ARG with the text to print after the help.
 */
export function parseFlags(
  args: readonly string[],
  table: readonly FlagSpec[] = FLAGS,
): ParsedFlags {
  const values = new Map<string, string[]>();
  const notes: string[] = [];
  for (let index = 0; index < args.length; index++) {
    const argument = args[index]!;
    const match = /^--?([^=]+)(?:=([\s\S]*))?$/.exec(argument);
    if (match === null) throw usage(`Unexpected argument: ${argument}${hintFor(argument)}`);
    const spec = findFlag(match[1]!, argument, table);
    let value = match[2];
    if (spec.kind === "none") {
      if (value !== undefined) throw usage(`option '--${spec.name}' doesn't allow an argument`);
      value = "true";
    } else if (value === undefined) {
      value = args[++index];
      if (value === undefined) throw usage(`option '--${spec.name}' requires an argument`);
    }
    checkValue(spec, value, notes);
    const known = values.get(spec.name);
    if (known === undefined) values.set(spec.name, [value]);
    else known.push(value);
  }
  return createParsedFlags(values, notes, table);
}

function hintFor(argument: string): string {
  if (argument.includes("/")) return `; a folder is given as --model-repository=${argument}`;
  const command = nearestWord(argument, ["check", "devices", "explain"]);
  return command === undefined
    ? ""
    : `; did you mean the command '${command}', in front of all options?`;
}

function usage(message: string): ServerError {
  return new ServerError("INVALID_ARG", message);
}

function findFlag(name: string, argument: string, table: readonly FlagSpec[]): FlagSpec {
  const exact = table.find((flag) => flag.name === name);
  if (exact !== undefined) return exact;
  const prefixed = argument.startsWith("--") ? table.filter((f) => f.name.startsWith(name)) : [];
  if (prefixed.length === 1) return prefixed[0]!;
  if (prefixed.length > 1) {
    const possible = prefixed.map((flag) => `'--${flag.name}'`).join(" ");
    throw usage(`option '--${name}' is ambiguous; possibilities: ${possible}`);
  }
  const nearest = name === "h" ? "help" : nearestWord(name, table.map((flag) => flag.name));
  const hint = nearest === undefined ? "" : `; did you mean '--${nearest}'?`;
  throw usage(`unrecognized option '${argument.split("=")[0]}'${hint}`);
}

function checkValue(spec: FlagSpec, value: string, notes: string[]): void {
  try {
    checkKind(spec, value);
    checkLater(spec, value);
  } catch (reason) {
    const problem = ServerError.from(reason);
    throw usage(`Bad option: "--${spec.name}".\n${problem.message}`);
  }
  if (spec.replacement !== undefined) {
    notes.push(`--${spec.name} is deprecated; write ${spec.replacement} instead`);
  }
  if (spec.noEffect !== undefined && value !== spec.preset) {
    notes.push(`--${spec.name} has no effect: ${spec.noEffect}`);
  }
}

function checkKind(spec: FlagSpec, value: string): void {
  const number = numberOf(spec, value);
  if (spec.kind === "bool") parseBoolValue(value);
  if (spec.range !== undefined && number !== undefined) {
    const [low, high, text] = spec.range;
    if (number < low || number > high) throw usage(text);
  }
  if (spec.choices !== undefined && matchChoice(spec, value) === undefined) {
    throw usage(
      `invalid argument for --${spec.name}: ${value}; expected ${spec.choices.join(", ")}`,
    );
  }
}

function checkLater(spec: FlagSpec, value: string): void {
  const word = spec.later;
  if (word === undefined || isPreset(spec, value)) return;
  throw usage(
    `--${spec.name}=${value} belongs to a feature that this version does not have yet: ${word}`,
  );
}

function isPreset(spec: FlagSpec, value: string): boolean {
  if (spec.preset === undefined) return false;
  if (spec.kind === "bool") return parseBoolValue(value) === parseBoolValue(spec.preset);
  const number = numberOf(spec, value);
  if (number !== undefined) return number === Number(spec.preset);
  return value.toLowerCase() === spec.preset.toLowerCase();
}

function numberOf(spec: FlagSpec, value: string): number | undefined {
  if (spec.kind === "int") return parseIntValue(value);
  if (spec.kind === "size") return parseIntValue(value, Number.MAX_SAFE_INTEGER);
  if (spec.kind === "float") return parseFloatValue(value);
  return undefined;
}

function matchChoice(spec: FlagSpec, value: string): string | undefined {
  return spec.choices?.find((choice) => choice.toLowerCase() === value.toLowerCase());
}

function createParsedFlags(
  values: ReadonlyMap<string, readonly string[]>,
  notes: readonly string[],
  table: readonly FlagSpec[],
): ParsedFlags {
  const specOf = (name: string): FlagSpec => {
    const spec = table.find((flag) => flag.name === name);
    if (spec === undefined) throw new TypeError(`There is no flag --${name}`);
    return spec;
  };
  const text = (name: string): string => {
    const spec = specOf(name);
    const value = values.get(name)?.at(-1) ?? spec.preset ?? "";
    return matchChoice(spec, value) ?? value;
  };
  return {
    notes,
    text,
    given: (name) => values.has(specOf(name).name),
    bool: (name) => parseBoolValue(text(name) || "false"),
    number: (name) => numberOf(specOf(name), text(name) || "0") ?? Number.NaN,
    list: (name) => values.get(specOf(name).name) ?? [],
  };
}
