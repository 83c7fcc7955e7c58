import { ServerError } from "../../proto/status.ts";

const INT64_MAX = 9223372036854775807n;

/**
 * The version of a path without leading zeros; "" stays "" (latest).
 * @throws ServerError INVALID_ARG when it is beyond int64 (http.md §2).
 */
export function parseModelVersion(digits: string): string {
  if (digits === "") return "";
  const isTooLong = digits.length > 1000;
  if (isTooLong || BigInt(digits) > INT64_MAX) {
    throw new ServerError(
      "INVALID_ARG",
      `failed to get model version from specified version string '${digits.slice(0, 100)}' ` +
        `(details: stol), version should be an integral value > 0`,
    );
  }
  return String(BigInt(digits));
}
