import type { ApiCategory } from "../core/options_frontend.ts";
import type { RequestHead } from "../transport/transport.ts";
import type { JsonOutput } from "./json_response.ts";

/** The header a call of a restricted category must carry. */
export interface RequiredHeader {
  /** In lower case. */
  readonly key: string;
  readonly value: string;
}

/** Settings of the HTTP frontend. */
export interface HttpOptions {
  /** `--http-max-input-size`; what it bounds is in http.md §11. */
  readonly maxInputBytes: number;
  /** `--http-restricted-api`; what is not listed is free. */
  readonly restrictedApis: ReadonlyMap<ApiCategory, RequiredHeader>;
  /** `--http-header-forward-pattern`, matched anywhere in a header's name. */
  readonly headerForwardPattern: RegExp | undefined;
  /** The answer of `GET /v2/devices`; absent = there is no such path. Never rejects. */
  readonly describeDevices?: () => Promise<JsonOutput>;
  /** Told of every request before it is served: for the log. */
  readonly onRequest?: (request: RequestHead) => void;
}

/** The defaults of cli.md §2. */
export const DEFAULT_HTTP_OPTIONS: HttpOptions = {
  maxInputBytes: 64 * 1024 * 1024,
  restrictedApis: new Map(),
  headerForwardPattern: undefined,
};
