import { ServerError } from "../../proto/status.ts";

/** Categories of calls that can be restricted (http.md §1.3, grpc.md §1.2). */
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

/** The header that a call of a category must carry. */
export interface RequiredHeader {
  /** In lower case. */
  readonly key: string;
  readonly value: string;
}

/** Category → header it needs; what is not listed is free. */
export type RestrictedApis = ReadonlyMap<ApiCategory, RequiredHeader>;

/**
 * Reads the values of `--http-restricted-api` ("api") or `--grpc-restricted-protocol` ("protocol").
 * @throws ServerError INVALID_ARG
 */
export function parseRestrictedApis(
  word: "api" | "protocol",
  texts: readonly string[],
): RestrictedApis {
  const flag = word === "api" ? "http-restricted-api" : "grpc-restricted-protocol";
  const result = new Map<ApiCategory, RequiredHeader>();
  for (const text of texts) {
    const match = /^([^:]+):([^=]+)=([\s\S]*)$/.exec(text);
    if (match === null) {
      throw usage(
        flag,
        `--${flag} option format is '<config name>:<setting>=<value>'. Got ${text}`,
      );
    }
    const header = { key: match[2]!.toLowerCase(), value: match[3]! };
    for (const name of match[1]!.split(",")) {
      const category = API_CATEGORIES.find((known) => known === name);
      if (category === undefined) {
        const expected = API_CATEGORIES.join(", ");
        throw usage(flag, `unknown restricted ${word} '${name}' ; expected one of ${expected}`);
      }
      if (result.has(category)) {
        throw usage(
          flag,
          `restricted ${word} '${name}' can not be specified in multiple config groups`,
        );
      }
      result.set(category, header);
    }
  }
  return result;
}

function usage(flag: string, message: string): ServerError {
  return new ServerError("INVALID_ARG", `Bad option: "--${flag}".\n${message}`);
}
