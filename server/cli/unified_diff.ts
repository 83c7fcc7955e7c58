const CONTEXT_LINES = 3;
/** Above so many line pairs the changed part is shown as one piece. */
const PAIRS_MAX = 4_000_000;

interface DiffLine {
  readonly sign: " " | "-" | "+";
  readonly text: string;
}

/** The changes between two texts in the form that `patch` and `git apply` read; "" when there are none. */
export function formatUnifiedDiff(
  before: string,
  after: string,
  { path, isNew = false }: { readonly path: string; readonly isNew?: boolean },
): string {
  if (before === after) return "";
  const lines = diffLines(splitLines(before), splitLines(after));
  const hunks = hunkRanges(lines).map(([begin, end]) => formatHunk(lines, begin, end));
  return `--- ${isNew ? "/dev/null" : path}\n+++ ${path}\n${hunks.join("")}`;
}

/** Lines with their ends. */
function splitLines(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

function diffLines(before: readonly string[], after: readonly string[]): DiffLine[] {
  let start = 0;
  while (start < before.length && before[start] === after[start]) start++;
  let tail = 0;
  const most = Math.min(before.length, after.length) - start;
  while (tail < most && before.at(-1 - tail) === after.at(-1 - tail)) tail++;
  const same = (text: string): DiffLine => ({ sign: " ", text });
  return [
    ...before.slice(0, start).map(same),
    ...diffMiddle(
      before.slice(start, before.length - tail),
      after.slice(start, after.length - tail),
    ),
    ...before.slice(before.length - tail).map(same),
  ];
}

function diffMiddle(before: readonly string[], after: readonly string[]): DiffLine[] {
  const removed = (text: string): DiffLine => ({ sign: "-", text });
  const added = (text: string): DiffLine => ({ sign: "+", text });
  if (before.length * after.length > PAIRS_MAX) {
    return [...before.map(removed), ...after.map(added)];
  }
  const width = after.length + 1;
  // Length of the longest common part of the rest of both, from each pair of lines on.
  const common = new Uint32Array((before.length + 1) * width);
  for (let row = before.length - 1; row >= 0; row--) {
    for (let column = after.length - 1; column >= 0; column--) {
      common[row * width + column] = before[row] === after[column]
        ? common[(row + 1) * width + column + 1]! + 1
        : Math.max(common[(row + 1) * width + column]!, common[row * width + column + 1]!);
    }
  }
  const lines: DiffLine[] = [];
  let [row, column] = [0, 0];
  while (row < before.length || column < after.length) {
    if (row < before.length && before[row] === after[column]) {
      lines.push({ sign: " ", text: before[row]! });
      row++;
      column++;
    } else if (
      column >= after.length || (row < before.length &&
        common[(row + 1) * width + column]! >= common[row * width + column + 1]!)
    ) lines.push(removed(before[row++]!));
    else lines.push(added(after[column++]!));
  }
  return lines;
}

/** Ranges of lines around changes, those that would touch joined. */
function hunkRanges(lines: readonly DiffLine[]): [number, number][] {
  const ranges: [number, number][] = [];
  for (const [index, { sign }] of lines.entries()) {
    if (sign === " ") continue;
    const begin = Math.max(0, index - CONTEXT_LINES);
    const end = Math.min(lines.length, index + CONTEXT_LINES + 1);
    const last = ranges.at(-1);
    if (last !== undefined && begin <= last[1]) last[1] = end;
    else ranges.push([begin, end]);
  }
  return ranges;
}

function formatHunk(lines: readonly DiffLine[], begin: number, end: number): string {
  const count = (from: number, to: number, sign: "-" | "+") =>
    lines.slice(from, to).filter((line) => line.sign === " " || line.sign === sign).length;
  const range = (sign: "-" | "+") => {
    const size = count(begin, end, sign);
    const first = count(0, begin, sign) + (size === 0 ? 0 : 1);
    return `${first},${size}`;
  };
  const body = lines.slice(begin, end).map(({ sign, text }) =>
    text.endsWith("\n") ? sign + text : `${sign}${text}\n\\ No newline at end of file\n`
  );
  return `@@ -${range("-")} +${range("+")} @@\n${body.join("")}`;
}
