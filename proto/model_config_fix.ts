import type { ConfigIssue, ConfigMend, TextEdit } from "./model_config_issue.ts";
import { removeSpan } from "./model_config_mend.ts";
import { scanModelConfig } from "./model_config_scan.ts";
import type { TextScan } from "./model_config_text.ts";

/** Longer texts are not mended: nobody wrote them by hand. */
const TEXT_LENGTH_MAX = 1024 * 1024;
/** So many characters are scanned at most while one text is mended: every mend is followed by a scan of all of it. */
const SCANNED_LENGTH_MAX = 8 * 1024 * 1024;

/** A text after mends. */
export interface ConfigFix {
  readonly text: string;
  /** The faults that are gone, as they were found. */
  readonly mended: readonly ConfigIssue[];
}

/**
 * Mends what cannot be read in the text of a `config.pbtxt`, where only one mend is possible. Every other character,
 * comments and line ends among them, stays as it is. A mend is kept only when it leaves fewer faults than before.
 */
export function fixConfigText(text: string): ConfigFix {
  const mended: ConfigIssue[] = [];
  let fixed = text;
  if (text.length > TEXT_LENGTH_MAX) return { text, mended };
  let scan = scanModelConfig(fixed);
  const budget = { length: SCANNED_LENGTH_MAX };
  while (scan.issues.length > 0) {
    const step = mendAll(fixed, scan, budget) ?? mendOne(fixed, scan, budget);
    if (step === undefined) break;
    mended.push(...step.issues);
    fixed = step.text;
    scan = step.scan;
  }
  return { text: fixed, mended };
}

/**
 * Applies the mends of faults that were found in what a readable text says. What would make the text unreadable is
 * left out, and so are mends that touch each other: they come with the next look at the text.
 */
export function mendConfigText(text: string, issues: readonly ConfigIssue[]): ConfigFix {
  const mended: ConfigIssue[] = [];
  if (text.length > TEXT_LENGTH_MAX) return { text, mended };
  const scan = scanModelConfig(text);
  const edits: TextEdit[] = [];
  const proposals = issues.map((issue) => ({
    issue,
    wanted: issue.mend === undefined ? [] : editsOf(text, scan, issue.mend),
  }));
  const all = proposals.flatMap(({ wanted }) => wanted);
  for (const { issue, wanted } of proposals) {
    // Two values for one place: somebody has to choose.
    if (wanted.some((edit) => all.some(contradicts(edit)))) continue;
    const isDone = wanted.length > 0 && wanted.every((edit) => edits.some(isSame(edit)));
    if (isDone) {
      mended.push(issue);
      continue;
    }
    if (wanted.length === 0 || wanted.some((edit) => edits.some(touches(edit)))) continue;
    if (scanModelConfig(applyEdits(text, wanted)).issues.length > scan.issues.length) continue;
    edits.push(...wanted);
    mended.push(issue);
  }
  return { text: applyEdits(text, edits), mended };
}

interface Step {
  readonly text: string;
  readonly scan: TextScan;
  readonly issues: readonly ConfigIssue[];
}

/** Characters that may still be scanned. */
interface ScanBudget {
  length: number;
}

function tryScan(text: string, budget: ScanBudget): TextScan | undefined {
  budget.length -= text.length;
  return budget.length < 0 ? undefined : scanModelConfig(text);
}

/** All mends at once, if each of them takes a fault away. */
function mendAll(text: string, scan: TextScan, budget: ScanBudget): Step | undefined {
  const edits: TextEdit[] = [];
  const issues: ConfigIssue[] = [];
  for (const issue of scan.issues) {
    const wanted = issue.mend === undefined ? [] : editsOf(text, scan, issue.mend);
    if (wanted.length === 0 || wanted.some((edit) => edits.some(touches(edit)))) continue;
    edits.push(...wanted);
    issues.push(issue);
  }
  if (issues.length < 2) return undefined;
  const fixed = applyEdits(text, edits);
  const after = tryScan(fixed, budget);
  if (after === undefined) return undefined;
  const isEachGone = after.issues.length <= scan.issues.length - issues.length;
  if (!isEachGone && !isFurther(after, scan)) return undefined;
  return { text: fixed, scan: after, issues };
}

function mendOne(text: string, scan: TextScan, budget: ScanBudget): Step | undefined {
  for (const issue of scan.issues) {
    const edits = issue.mend === undefined ? [] : editsOf(text, scan, issue.mend);
    if (edits.length === 0) continue;
    const fixed = applyEdits(text, edits);
    if (fixed === text) continue;
    const after = tryScan(fixed, budget);
    if (after === undefined) return undefined;
    if (isBetter(after, scan)) return { text: fixed, scan: after, issues: [issue] };
    const further = mendUncovered(fixed, { before: scan, after }, budget);
    if (further !== undefined) return { ...further, issues: [issue, ...further.issues] };
  }
  return undefined;
}

/** A mend may uncover a fault that stood behind the one it took away: both together must make it better. */
function mendUncovered(
  text: string,
  { before, after }: { readonly before: TextScan; readonly after: TextScan },
  budget: ScanBudget,
): Step | undefined {
  if (after.issues.length > before.issues.length) return undefined;
  const known = new Set(before.issues.map(({ path }) => path));
  const issue = after.issues.find(({ path, mend }) => mend !== undefined && !known.has(path));
  if (issue?.mend === undefined) return undefined;
  const fixed = applyEdits(text, editsOf(text, after, issue.mend));
  const scan = tryScan(fixed, budget);
  return scan !== undefined && isBetter(scan, before)
    ? { text: fixed, scan, issues: [issue] }
    : undefined;
}

/** Fewer faults, or a whole text that could not be read at all and now can in part. */
function isBetter(after: TextScan, before: TextScan): boolean {
  if (after.issues.length < before.issues.length || isFurther(after, before)) return true;
  return before.positions.size === 0 && after.positions.size > 0;
}

/** A scan ends at a number of faults: with fewer of them at the beginning it gets further. */
function isFurther(after: TextScan, before: TextScan): boolean {
  if (after.issues.length !== before.issues.length || !before.isCut || !after.isCut) return false;
  const line = (scan: TextScan) => scan.issues.at(-1)?.position?.line ?? 0;
  return line(after) > line(before);
}

function touches(edit: TextEdit): (other: TextEdit) => boolean {
  return (other) => edit.begin <= other.end && other.begin <= edit.end;
}

function contradicts(edit: TextEdit): (other: TextEdit) => boolean {
  return ({ begin, end, text }) =>
    begin < end && edit.begin === begin && edit.end === end && edit.text !== text;
}

function isSame(edit: TextEdit): (other: TextEdit) => boolean {
  return ({ begin, end, text }) => edit.begin === begin && edit.end === end && edit.text === text;
}

/** The text with all edits, which must not overlap. */
function applyEdits(text: string, edits: readonly TextEdit[]): string {
  let fixed = text;
  const ordered = edits.toSorted((left, right) => right.begin - left.begin);
  const eol = text.includes("\r\n") ? "\r\n" : "\n";
  for (const edit of ordered) {
    const inserted = edit.text.replaceAll(/\r?\n/g, eol);
    fixed = fixed.slice(0, edit.begin) + inserted + fixed.slice(edit.end);
  }
  return fixed;
}

function editsOf(text: string, scan: TextScan, mend: ConfigMend): readonly TextEdit[] {
  if ("edits" in mend) return mend.edits;
  return mend.fields.flatMap(({ path, value }) => {
    const span = scan.spans.get(path);
    if (value !== undefined) return setting(text, scan, path, value);
    return span === undefined ? [] : [removeSpan(text, span, path.endsWith("]"))];
  });
}

/** Gives a field another value, or adds it to the message around it. */
function setting(
  text: string,
  scan: TextScan,
  path: string,
  value: string,
): readonly TextEdit[] {
  const span = scan.spans.get(path);
  if (span !== undefined) return [{ begin: span.valueBegin, end: span.end, text: value }];
  const cut = path.lastIndexOf(".");
  const name = path.slice(cut + 1).replace(/\[.*$/, "");
  const field = value.startsWith("{") ? `${name} ${value}` : `${name}: ${value}`;
  if (cut < 0) {
    const isLineOpen = text !== "" && !text.endsWith("\n");
    return [{ begin: text.length, end: text.length, text: `${isLineOpen ? "\n" : ""}${field}\n` }];
  }
  const around = scan.spans.get(path.slice(0, cut));
  if (around === undefined || !/[}>]/.test(text[around.end - 1] ?? "")) return [];
  const inside = around.end - 1;
  const begin = inside - /\s*$/.exec(text.slice(around.valueBegin + 1, inside))![0].length;
  const isComment = /#[^\n]*$/.test(text.slice(around.valueBegin, begin));
  return [{ begin, end: begin, text: isComment ? `\n${field}` : ` ${field}` }];
}
