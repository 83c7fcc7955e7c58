import { ServerError } from "../../proto/status.ts";
import { API_CATEGORIES, type ApiCategory } from "../core/options_frontend.ts";

/** The calls of these categories must carry header (or metadata) `key` with exactly `value`. */
export interface RestrictedApi {
  readonly categories: readonly ApiCategory[];
  readonly key: string;
  readonly value: string;
}

/**
 * Reads the values of `--http-restricted-api` ("api") or `--grpc-restricted-protocol` ("protocol").
 * @throws ServerError INVALID_ARG
 */
export function parseRestrictedApis(
  word: "api" | "protocol",
  texts: readonly string[],
): readonly RestrictedApi[] {
  const flag = word === "api" ? "http-restricted-api" : "grpc-restricted-protocol";
  const seen = new Set<ApiCategory>();
  return texts.map((text) => {
    const match = /^([^:]+):([^=]+)=([\s\S]*)$/.exec(text);
    if (match === null) {
      throw usage(
        flag,
        `--${flag} option format is '<config name>:<setting>=<value>'. Got ${text}`,
      );
    }
    const categories = match[1]!.split(",").map((name) => {
      const category = API_CATEGORIES.find((known) => known === name);
      if (category === undefined) {
        const expected = API_CATEGORIES.join(", ");
        throw usage(flag, `unknown restricted ${word} '${name}' ; expected one of ${expected}`);
      }
      if (seen.has(category)) {
        throw usage(
          flag,
          `restricted ${word} '${name}' can not be specified in multiple config groups`,
        );
      }
      seen.add(category);
      return category;
    });
    return { categories, key: match[2]!, value: match[3]! };
  });
}

function usage(flag: string, message: string): ServerError {
  return new ServerError("INVALID_ARG", `Bad option: "--${flag}".\n${message}`);
}
