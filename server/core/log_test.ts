import assert from "node:assert/strict";
import { createLog, DEFAULT_LOG_SETTINGS, type LogSettings, moduleLog } from "./log.ts";

const WALL_MS = Date.UTC(2026, 1, 3, 4, 5, 6) + 7.25;

function linesOf(
  settings: Partial<LogSettings>,
  write: (log: ReturnType<typeof createLog>) => void,
  escapesMessages = true,
): { readonly line: string; readonly isProblem: boolean }[] {
  const lines: { line: string; isProblem: boolean }[] = [];
  write(createLog({
    settings: { ...DEFAULT_LOG_SETTINGS, ...settings },
    sink: (line, isProblem) => lines.push({ line, isProblem }),
    wallNow: () => WALL_MS,
    pid: 42,
    escapesMessages,
  }));
  return lines;
}

Deno.test("createLog() writes lines of the default format", () => {
  const lines = linesOf({}, (log) => {
    const own = moduleLog(log, "model_lifecycle.ts");
    own.info("loading: m:1");
    own.warning("careful");
    own.error("no");
  });
  assert.deepEqual(lines, [
    {
      line: 'I0203 04:05:06.007250 42 model_lifecycle.ts:0] "loading: m:1"\n',
      isProblem: false,
    },
    { line: 'W0203 04:05:06.007250 42 model_lifecycle.ts:0] "careful"\n', isProblem: true },
    { line: 'E0203 04:05:06.007250 42 model_lifecycle.ts:0] "no"\n', isProblem: true },
  ]);
});

Deno.test("createLog() writes lines of the format ISO8601", () => {
  const [first] = linesOf({ format: "ISO8601" }, (log) => log.info("x"));
  assert.equal(first!.line, '2026-02-03T04:05:06Z I 42 server:0] "x"\n');
});

Deno.test("createLog() names the user's code in place of the module that hands the line on", () => {
  const lines = linesOf({ verboseLevel: 2 }, (log) => {
    const own = moduleLog(log, "backend.ts");
    own.info("a", { file: "model.py", line: 12 });
    own.warning("b", { file: "helper.ts", line: 3.9 });
    own.error("c", { file: "x\u001b[2J\ny.py", line: 1 });
    own.verbose(2, "d", { file: "f".repeat(300), line: 1 });
    own.verbose(3, "e", { file: "model.py", line: 1 });
  });
  assert.deepEqual(lines.map(({ line }) => line.slice(0, 1) + line.slice(24, -1)), [
    'I model.py:12] "a"',
    'W helper.ts:3] "b"',
    'E x\\u001b[2J y.py:1] "c"',
    `I ${"f".repeat(200)}:1] "d"`,
  ]);
});

Deno.test("createLog() writes only what its levels allow", () => {
  const settings = { info: false, warning: false, error: false, verboseLevel: 1 };
  const lines = linesOf(settings, (log) => {
    log.info("a");
    log.warning("b");
    log.error("c");
    log.verbose(1, "d");
    log.verbose(2, "e");
  });
  assert.deepEqual(lines.map(({ line }) => line.slice(-4)), ['"d"\n']);
});

Deno.test("createLog() lets no message forge a line or steer a terminal", () => {
  const message = 'a"b\nI0203 forged\u001b[2J\u0085';
  const [escaped] = linesOf({}, (log) => log.info(message));
  assert.ok(escaped!.line.endsWith('] "a\\"b\\nI0203 forged\\u001b[2J\\u0085"\n'), escaped!.line);
  const [plain] = linesOf({}, (log) => log.info(message), false);
  assert.ok(plain!.line.endsWith('] a"b\n  I0203 forged\\u001b[2J\\u0085\n'), plain!.line);
});
