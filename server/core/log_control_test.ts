import assert from "node:assert/strict";
import { createLog } from "./log.ts";
import { createLogControl } from "./log_control.ts";

Deno.test("LogControl.update() changes the log that uses its settings at once", () => {
  const control = createLogControl(undefined, "server.log");
  const lines: string[] = [];
  const log = createLog({
    settings: control.settings,
    sink: (line) => lines.push(line),
    wallNow: () => 0,
    pid: 1,
    escapesMessages: true,
  });
  const own = log.module("a.ts");
  own.verbose(1, "a");
  assert.equal(own.isVerbose!(1), false);
  assert.deepEqual(
    control.update({ logVerboseLevel: 1, logInfo: false, logFormat: "ISO8601" }),
    {
      logFile: "server.log",
      logInfo: false,
      logWarning: true,
      logError: true,
      logVerboseLevel: 1,
      logFormat: "ISO8601",
    },
  );
  assert.equal(own.isVerbose!(1), true);
  own.info("b");
  own.verbose(1, "c");
  assert.deepEqual(lines, ['1970-01-01T00:00:00Z I 1 a.ts:0] "c"\n']);
});

Deno.test("LogControl.update() refuses a format it does not know, what came before stays changed", () => {
  const control = createLogControl();
  assert.throws(() => control.update({ logError: false, logFormat: "xml" }), {
    code: "INVALID_ARG",
    message: "invalid argument for log_format, got: xml",
  });
  assert.equal(control.settings.error, false);
  assert.equal(control.settings.format, "default");
  assert.equal(createLogControl().settings.error, true);
});
