import type { CheckFault } from "../core/check/check_faults.ts";
import { printableName } from "../../proto/model_name.ts";
import { shownPath } from "./check_options.ts";

/** A file that `--fix` changed, or would change. */
export interface CheckFix {
  /** Absolute path. */
  readonly file: string;
  readonly diff: string;
  readonly isWritten: boolean;
  /** Why it could not be written. */
  readonly error: string | undefined;
}

/** What a check found and did. */
export interface CheckReport {
  readonly modelCount: number;
  readonly faults: readonly CheckFault[];
  readonly fixes: readonly CheckFix[];
}

/** Version of the JSON form; grows when a member goes or changes its meaning, not when one is added. */
const JSON_FORMAT = 1;

/** True when nothing is left that the server would refuse. */
export function isClean({ faults, fixes }: CheckReport): boolean {
  const isAllWritten = fixes.every(({ isWritten }) => isWritten);
  return isAllWritten && faults.every(({ severity }) => severity !== "error");
}

/** The report for people: one line `file:line:column: severity: message` per fault, its hint below. */
export function formatCheckReport(report: CheckReport): string {
  const fixes = report.fixes.map(({ diff, error, file }) =>
    error === undefined
      ? diff
      : `${diff}${shownPath(file)}: error: cannot mend this file: ${error}\n`
  );
  return [...fixes, formatFaults(report.faults), summary(report)].join("");
}

/** Lines of the report, one or more per fault. */
export function formatFaults(faults: readonly CheckFault[]): string {
  return faults.map(formatFault).join("");
}

function formatFault(fault: CheckFault): string {
  const { severity, path, message, hint, isFixable } = fault;
  const field = path === "" ? "" : `${path}: `;
  const lines = [`${placeText(fault)}: ${severity}: ${field}${safeText(message)}`];
  if (hint !== undefined) lines.push(`    ${safeText(hint)}`);
  if (isFixable) lines.push("    --fix can mend this");
  return lines.join("\n") + "\n";
}

function placeText({ file, line, column }: CheckFault): string {
  const path = safeText(shownPath(file));
  return line === undefined ? path : `${path}:${line}:${column}`;
}

/** Texts of files must not write into the terminal of who reads them. */
function safeText(text: string): string {
  return text.split("\n").map(printableName).join("\n    ");
}

function summary({ modelCount, faults, fixes }: CheckReport): string {
  const errors = faults.filter(({ severity }) => severity === "error");
  const faulty = new Set(errors.map(({ repository, model }) => `${repository}/${model}`)).size;
  const fixable = errors.filter(({ isFixable }) => isFixable).length;
  const written = fixes.filter(({ isWritten }) => isWritten).length;
  const parts = [
    `${counted(modelCount, "model")} checked`,
    errors.length === 0
      ? "no faults"
      : `${counted(errors.length, "fault")} in ${counted(faulty, "place")}`,
  ];
  if (written > 0) parts.push(`${counted(written, "file")} mended`);
  if (written === 0 && fixes.length > 0) parts.push("nothing written");
  if (fixable > 0 && fixes.length === 0) parts.push(`--fix can mend ${fixable}`);
  return `${parts.join(", ")}\n`;
}

function counted(count: number, word: string): string {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** The report for machines; docs/check.md describes it. */
export function formatCheckJson(report: CheckReport): string {
  const faults = report.faults.map((fault) => ({
    severity: fault.severity,
    repository: fault.repository,
    model: fault.model,
    file: fault.file,
    line: fault.line ?? null,
    column: fault.column ?? null,
    path: fault.path,
    message: fault.message,
    hint: fault.hint ?? null,
    code: fault.code,
    fixable: fault.isFixable,
  }));
  const fixes = report.fixes.map(({ file, diff, isWritten, error }) => ({
    file,
    diff,
    written: isWritten,
    error: error ?? null,
  }));
  const { modelCount } = report;
  const document = {
    format: JSON_FORMAT,
    ok: isClean(report),
    models: modelCount,
    faults,
    fixes,
  };
  return JSON.stringify(document, null, 2) + "\n";
}
