import { ServerError, type StatusCode } from "./status.ts";

/** A place in a configuration file, both 1-based. */
export interface ConfigPosition {
  readonly line: number;
  readonly column: number;
}

/** Where the fields of a parsed configuration stand in its file, by path such as `input[0].dims[1]`. */
export interface ConfigPositions {
  readonly fileName: string;
  readonly byPath: ReadonlyMap<string, ConfigPosition>;
}

/** Where a field stands in the text, as offsets: the field or list element, and its value, which ends with it. */
export interface ConfigSpan {
  readonly begin: number;
  readonly valueBegin: number;
  readonly end: number;
}

/** One change of a text: what stands from `begin` to `end` becomes `text`. */
export interface TextEdit {
  readonly begin: number;
  readonly end: number;
  readonly text: string;
}

/**
 * The one mend of a fault that cannot change what the author meant: changes of the text as it stands, or fields that
 * get another value (`undefined` = that are taken out). Absent where two mends are possible.
 */
export type ConfigMend =
  | { readonly edits: readonly TextEdit[] }
  | {
    readonly fields: readonly { readonly path: string; readonly value: string | undefined }[];
  };

/** One fault of a configuration. */
export interface ConfigIssue {
  /** Path of the field, such as `input[0].data_type`; "" = the whole configuration. */
  readonly path: string;
  /** What is wrong. For faults of a valid file: the reference's text, with the model's name. */
  readonly message: string;
  /** What the user most likely has to do. */
  readonly hint?: string;
  /** Set when the file could not be read further as it stands; the place then leads the text. */
  readonly position?: ConfigPosition;
  /** INVALID_ARG when absent. */
  readonly code?: StatusCode;
  readonly mend?: ConfigMend;
  /** A file or folder that the fault is about, relative to the repository; the configuration file when absent. */
  readonly place?: string;
  /** True for what the backend may still fill in from the model. */
  readonly isCompletable?: boolean;
}

/** The structured form of an error made by {@linkcode configError}. */
export interface ConfigFaults {
  readonly issues: readonly ConfigIssue[];
  readonly positions: ConfigPositions | undefined;
}

/** Faults of each error; on the side, so that there is one class of errors only. */
const FAULTS = new WeakMap<ServerError, ConfigFaults>();

/** The faults behind an error; one that was not made from faults is a fault of the whole configuration. */
export function configFaults(reason: unknown): ConfigFaults {
  const error = ServerError.from(reason);
  const { message, code } = error;
  return FAULTS.get(error) ?? { issues: [{ path: "", message, code }], positions: undefined };
}

/** The same error with the places of its faults, where it was made without knowing them. */
export function placedError(reason: unknown, positions?: ConfigPositions): ServerError {
  const error = ServerError.from(reason);
  const faults = FAULTS.get(error);
  if (faults === undefined || faults.positions !== undefined || positions === undefined) {
    return error;
  }
  return configError(faults.issues, positions);
}

/** More issues than this are only counted in the error's text. */
const ISSUES_SHOWN_MAX = 50;

/** One issue as a line of text, with its place where that is known. */
export function formatConfigIssue(issue: ConfigIssue, positions?: ConfigPositions): string {
  const hint = issue.hint === undefined ? "" : `; ${issue.hint}`;
  if (issue.position !== undefined) {
    const { line, column } = issue.position;
    const path = issue.path === "" ? "" : `${issue.path}: `;
    return `${positions?.fileName ?? "config"}:${line}:${column}: ${path}${issue.message}${hint}`;
  }
  if (issue.path === "") {
    const place = issue.place ??
      (positions !== undefined && positions.byPath.size > 0 ? positions.fileName : undefined);
    const tail = place === undefined || issue.message.includes(place) ? "" : ` (${place})`;
    return issue.message + tail + hint;
  }
  if (issue.place !== undefined) return `${issue.message} (${issue.place})${hint}`;
  const found = positions === undefined ? undefined : positionOf(issue.path, positions);
  const place = found === undefined
    ? issue.path
    : `${positions?.fileName}:${found.line}:${found.column}: ${issue.path}`;
  return `${issue.message} (${place})${hint}`;
}

/** All issues in one error: the first one leads, the others follow on indented lines. */
export function configError(
  issues: readonly ConfigIssue[],
  positions?: ConfigPositions,
): ServerError {
  const lines: string[] = [];
  for (const issue of issues) {
    const line = formatConfigIssue(issue, positions);
    if (!lines.includes(line)) lines.push(line);
    if (lines.length > ISSUES_SHOWN_MAX) break;
  }
  if (lines.length > ISSUES_SHOWN_MAX) {
    lines[ISSUES_SHOWN_MAX] = `and ${issues.length - ISSUES_SHOWN_MAX} more`;
  }
  const error = new ServerError(issues[0]?.code ?? "INVALID_ARG", lines.join("\n  "));
  FAULTS.set(error, { issues, positions });
  return error;
}

/**
 * Leaves out issues that may only follow from fields that could not be read: those around, at or below such a field,
 * and all that depend on the whole when a field of the top level is among them.
 */
export function withoutConsequences(
  issues: readonly ConfigIssue[],
  parseIssues: readonly ConfigIssue[],
): ConfigIssue[] {
  const faulty = parseIssues.map((issue) => issue.path);
  const isWholeUnknown = faulty.some((path) => !/[.[]/.test(path));
  return issues.filter(({ path }) => {
    if (isWholeUnknown && !/^(?:input|output)\[/.test(path)) return false;
    return !faulty.some((other) => isSameOrBelow(path, other) || isSameOrBelow(other, path));
  });
}

function isSameOrBelow(path: string, around: string): boolean {
  if (!path.startsWith(around)) return false;
  return path.length === around.length || ".[".includes(path.charAt(around.length));
}

/** Position of the field, or of the innermost message around it that is in the file. */
export function positionOf(path: string, positions: ConfigPositions): ConfigPosition | undefined {
  let rest = path;
  while (rest !== "") {
    const found = positions.byPath.get(rest);
    if (found !== undefined) return found;
    const cut = Math.max(rest.lastIndexOf("."), rest.lastIndexOf("["));
    rest = cut < 0 ? "" : rest.slice(0, cut);
  }
  return undefined;
}
