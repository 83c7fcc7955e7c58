/** The checks of `deno task ok` that look at the sources without running them; last line `N passed, N failed`. */
const PROJECT = new URL("../", import.meta.url).pathname;

const CHECKS: readonly (readonly [name: string, args: readonly string[]])[] = [
  ["formatting", ["fmt", "--check"]],
  ["lint", ["lint"]],
  ["types", ["check"]],
  ["documentation", ["doc", "--lint", "mod.ts"]],
];

function print(text: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(text + "\n"));
}

/** Runs all checks; returns the exit code. */
async function main(): Promise<number> {
  let failed = 0;
  for (const [name, args] of CHECKS) {
    const { code, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [...args],
      cwd: PROJECT,
      stdin: "null",
      env: { NO_COLOR: "1" },
    }).output();
    print(`${code === 0 ? "ok  " : "FAIL"} ${name}: deno ${args.join(" ")}`);
    if (code === 0) continue;
    failed++;
    const decoder = new TextDecoder();
    print((decoder.decode(stdout) + decoder.decode(stderr)).slice(-8000));
  }
  print(`${CHECKS.length - failed} passed, ${failed} failed`);
  return failed === 0 ? 0 : 1;
}

if (import.meta.main) Deno.exit(await main());
