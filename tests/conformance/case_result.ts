/** What one of the recorded suites said about its cases. */
export interface SuiteResult {
  /** Case name → did it pass, in the order of the run. */
  readonly cases: ReadonlyMap<string, boolean>;
  /** For each failing case, the lines that explain it. */
  readonly details: ReadonlyMap<string, readonly string[]>;
}

/**
 * Reads the output of a `run.py --verbose`.
 * @throws Error when the cases named do not add up to its last line, `N passed, N failed`.
 */
export function parseSuiteOutput(output: string): SuiteResult {
  const cases = new Map<string, boolean>();
  const details = new Map<string, string[]>();
  let failing: string[] | undefined;
  let total: RegExpExecArray | null = null;
  for (const line of output.split("\n")) {
    const head = /^(ok {2}|FAIL) +(\S+)/.exec(line);
    const count = /^(\d+) passed, (\d+) failed/.exec(line);
    if (head !== null) {
      const passed = head[1] === "ok  ";
      cases.set(head[2]!, passed);
      failing = passed ? undefined : [];
      if (failing !== undefined) details.set(head[2]!, failing);
    } else if (count !== null) {
      total = count;
    } else if (/^\s/.test(line)) {
      failing?.push(line);
    }
  }
  const passed = [...cases.values()].filter((value) => value).length;
  const failed = cases.size - passed;
  if (total === null || Number(total[1]) !== passed || Number(total[2]) !== failed) {
    const said = total === null ? "no count" : total[0];
    throw new Error(`Suite names ${passed} passed, ${failed} failed cases but says: ${said}`);
  }
  return { cases, details };
}
