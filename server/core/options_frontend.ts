/** Categories of calls that can be restricted, over every protocol (http.md §1.3, grpc.md §1.2). */
export const API_CATEGORIES = [
  "health",
  "metadata",
  "inference",
  "shared-memory",
  "model-config",
  "model-repository",
  "statistics",
  "trace",
  "logging",
] as const;

/** One of {@linkcode API_CATEGORIES}. */
export type ApiCategory = (typeof API_CATEGORIES)[number];

/** What clients are told when they ask for the settings of the log. */
export interface LogSettingValues {
  readonly logFile: string;
  readonly logInfo: boolean;
  readonly logWarning: boolean;
  readonly logError: boolean;
  readonly logVerboseLevel: number;
  readonly logFormat: string;
}

/** What clients may change of it; the file they may not (security.md). */
export type LogSettingChange = Partial<Omit<LogSettingValues, "logFile">>;

/** The defaults of cli.md §2.1. */
export const DEFAULT_LOG_SETTING_VALUES: LogSettingValues = {
  logFile: "",
  logInfo: true,
  logWarning: true,
  logError: true,
  logVerboseLevel: 0,
  logFormat: "default",
};
