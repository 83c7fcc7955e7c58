import { ServerError } from "../../proto/status.ts";
import { DEFAULT_LOG_SETTINGS, type LogSettings } from "./log.ts";
import type { LogSettingChange, LogSettingValues } from "./options_frontend.ts";

/** The settings of a log that can be changed while it is used (http.md §8). */
export interface LogControl {
  /** What the log is created with: always the settings in force. */
  readonly settings: LogSettings;
  /**
   * Changes settings, if any are given, one after the other: an error leaves those before it changed. Returns them all.
   * @throws ServerError INVALID_ARG for a value that makes no sense.
   */
  update(change: LogSettingChange): LogSettingValues;
}

/** Creates the settings of a log; `file` is only shown: no client may choose a file (security.md). */
export function createLogControl(
  start: LogSettings = DEFAULT_LOG_SETTINGS,
  file = "",
): LogControl {
  const settings: { -readonly [Key in keyof LogSettings]: LogSettings[Key] } = { ...start };
  return {
    settings,
    update(change) {
      if (change.logInfo !== undefined) settings.info = change.logInfo;
      if (change.logWarning !== undefined) settings.warning = change.logWarning;
      if (change.logError !== undefined) settings.error = change.logError;
      if (change.logVerboseLevel !== undefined) settings.verboseLevel = change.logVerboseLevel;
      if (change.logFormat !== undefined) settings.format = readFormat(change.logFormat);
      return {
        logFile: file,
        logInfo: settings.info,
        logWarning: settings.warning,
        logError: settings.error,
        logVerboseLevel: settings.verboseLevel,
        logFormat: settings.format,
      };
    },
  };
}

function readFormat(text: string): LogSettings["format"] {
  if (text === "default" || text === "ISO8601") return text;
  throw new ServerError("INVALID_ARG", `invalid argument for log_format, got: ${text}`);
}
