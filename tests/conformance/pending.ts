/** The contents of pending.json: what waits for a feature of a later issue. The lists may only shrink. */
export interface PendingLists {
  /** Start flags of the suites' READMEs that are left out: flag name → feature. */
  readonly flags: Readonly<Record<string, string>>;
  /** Models that are not loaded at the start: name → feature. */
  readonly models: Readonly<Record<string, string>>;
  /** Suites that are not run at all: name → feature. */
  readonly suites: Readonly<Record<string, string>>;
  /** Suite → case → feature. These cases run, and must fail. */
  readonly cases: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Suite → case → why this server answers otherwise on purpose. These run, too, and must fail. */
  readonly deliberate: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

/** What the rules make of a suite's result. */
export interface Verdict {
  readonly passed: number;
  /** Cases that fail and are not listed, and listed ones that pass. */
  readonly problems: readonly string[];
  /** Listed cases that fail as they should. */
  readonly pending: number;
}

/**
 * Every case that is not listed has to pass; a listed case that passes is a problem until it is taken out of the
 * list, and so is a listed case that the suite does not have.
 */
export function judgeCases(
  cases: ReadonlyMap<string, boolean>,
  listed: Readonly<Record<string, string>>,
): Verdict {
  const problems: string[] = [];
  let passed = 0;
  let pending = 0;
  for (const [name, good] of cases) {
    const feature = listed[name];
    if (good && feature === undefined) passed++;
    else if (good) problems.push(`${name} passes: take it out of pending.json (${feature})`);
    else if (feature === undefined) problems.push(`${name} fails`);
    else pending++;
  }
  for (const name of Object.keys(listed)) {
    if (!cases.has(name)) problems.push(`${name} is listed in pending.json but was not run`);
  }
  return { passed, problems, pending };
}
