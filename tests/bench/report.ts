import type { Cell } from "./measure.ts";

const NAME_WIDTH = 44;

/** Headings of the columns of {@linkcode formatCell}. */
export const HEADLINE = `${
  "".padEnd(NAME_WIDTH)
} requests/s    p50 us    p99 us  server CPU us  foreign`;

/** One line of the table. */
export function formatCell(
  name: string,
  cell: Cell,
  ratios: readonly (readonly [string, number])[],
): string {
  const numbers = [cell.perSecond, cell.p50Us, cell.p99Us].map((value) =>
    value.toFixed(0).padStart(10)
  );
  const notes = ratios.map(([text, value]) => `${value.toFixed(2)} ${text}`);
  if (cell.errors > 0) notes.push(`${cell.errors} errors: ${cell.firstError}`);
  const cpu = cell.cpuUs.toFixed(1).padStart(13);
  const foreign = cell.foreign.toFixed(2).padStart(7);
  return `${name.padEnd(NAME_WIDTH)} ${numbers.join("")}  ${cpu}  ${foreign}   ${notes.join(", ")}`
    .trimEnd();
}

/** A goal, with what was reached. */
export function formatGoal(title: string, value: number, goal: string, isReached: boolean): string {
  return `${isReached ? "reached" : "MISSED "}  ${title} ${value.toFixed(2)} (${goal})`;
}

/** Writes a line to standard output. */
export function print(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(line + "\n"));
}
