/** Groups of calls that can be restricted (http.md §1.3). */
export type ApiCategory =
  | "health"
  | "metadata"
  | "inference"
  | "shared-memory"
  | "model-config"
  | "model-repository"
  | "statistics"
  | "trace"
  | "logging";

/** The header a call of a restricted category must carry. */
export interface RequiredHeader {
  /** In lower case. */
  readonly key: string;
  readonly value: string;
}

/** What `GET /v2/logging` answers. */
export interface LogSettingValues {
  readonly logFile: string;
  readonly logInfo: boolean;
  readonly logWarning: boolean;
  readonly logError: boolean;
  readonly logVerboseLevel: number;
  readonly logFormat: string;
}

/** Settings of the HTTP frontend. */
export interface HttpOptions {
  /** `--http-max-input-size`; what it bounds is in http.md §11. */
  readonly maxInputBytes: number;
  /** `--http-restricted-api`; what is not listed is free. */
  readonly restrictedApis: ReadonlyMap<ApiCategory, RequiredHeader>;
  /** `--http-header-forward-pattern`, matched anywhere in a header's name. */
  readonly headerForwardPattern: RegExp | undefined;
  readonly logSettings: LogSettingValues;
}

/** The defaults of cli.md §2. */
export const DEFAULT_HTTP_OPTIONS: HttpOptions = {
  maxInputBytes: 64 * 1024 * 1024,
  restrictedApis: new Map(),
  headerForwardPattern: undefined,
  logSettings: {
    logFile: "",
    logInfo: true,
    logWarning: true,
    logError: true,
    logVerboseLevel: 0,
    logFormat: "default",
  },
};
