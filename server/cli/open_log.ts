import { createConsoleSink, createLog, openFileSink, type ServerLog } from "../core/log.ts";
import type { LogOptions } from "./serve_options.ts";

/** The server's log as the flags ask for it; disposing it closes its file. */
export function openLog(options: LogOptions): ServerLog & Disposable {
  const file = options.file === "" ? undefined : openFileSink(options.file);
  const log = createLog({
    settings: {
      info: options.info,
      warning: options.warning,
      error: options.error,
      verboseLevel: options.verbose,
      format: options.format,
    },
    sink: file ?? createConsoleSink(),
    wallNow: () => performance.timeOrigin + performance.now(),
    pid: Deno.pid,
    escapesMessages: Deno.env.get("TRITON_SERVER_ESCAPE_LOG_MESSAGES") !== "0",
  });
  return { ...log, [Symbol.dispose]: () => file?.[Symbol.dispose]() };
}
