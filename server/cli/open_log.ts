import { createConsoleSink, createLog, openFileSink, type ServerLog } from "../core/log.ts";
import { createLogControl, type LogControl } from "../core/log_control.ts";
import type { LogOptions } from "./serve_options.ts";

/** A log with its settings; disposing it closes its file. */
export interface OpenedLog extends ServerLog, Disposable {
  readonly control: LogControl;
}

/** The server's log as the flags ask for it. @throws what opening its file throws. */
export function openLog(options: LogOptions): OpenedLog {
  const file = options.file === "" ? undefined : openFileSink(options.file);
  const control = createLogControl({
    info: options.info,
    warning: options.warning,
    error: options.error,
    verboseLevel: options.verbose,
    format: options.format,
  }, options.file);
  const log = createLog({
    settings: control.settings,
    sink: file ?? createConsoleSink(),
    wallNow: () => performance.timeOrigin + performance.now(),
    pid: Deno.pid,
    escapesMessages: Deno.env.get("TRITON_SERVER_ESCAPE_LOG_MESSAGES") !== "0",
  });
  return { ...log, control, [Symbol.dispose]: () => file?.[Symbol.dispose]() };
}
