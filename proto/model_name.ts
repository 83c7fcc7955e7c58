import { ServerError } from "./status.ts";

/** Longest name of a file system entry that common file systems accept, in bytes. */
const NAME_BYTES_MAX = 255;

// deno-lint-ignore no-control-regex
const CONTROL_CHARACTERS = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g;

/** The text with control characters written as `\uXXXX`, so that it cannot forge lines of a log. */
export function printableName(name: string): string {
  return name.replace(
    CONTROL_CHARACTERS,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/**
 * Checks a model name that a client or a directory gave: one path segment that stays where it is.
 * @throws ServerError INVALID_ARG with the texts of http.md §5.2.
 */
export function checkModelName(name: string): void {
  const trimmed = name.trim();
  if (trimmed === "") {
    throw new ServerError(
      "INVALID_ARG",
      "Model name cannot be empty. Please enter a valid name to deploy.",
    );
  }
  const reason = problemOf(name, trimmed);
  if (reason !== undefined) {
    throw new ServerError(
      "INVALID_ARG",
      `invalid model name '${
        printableName(name.slice(0, NAME_BYTES_MAX))
      }', model name must not ${reason}`,
    );
  }
}

/** A backslash is a character like any other, but on Windows. */
function hasSeparator(name: string): boolean {
  return name.includes("/") || (name.includes("\\") && navigator.platform.startsWith("Win"));
}

function problemOf(name: string, trimmed: string): string | undefined {
  if (trimmed === "." || trimmed === ".." || hasSeparator(name)) {
    return "contain path traversal characters";
  }
  if (name.search(CONTROL_CHARACTERS) >= 0) return "contain control characters";
  if (name.length > NAME_BYTES_MAX || new TextEncoder().encode(name).length > NAME_BYTES_MAX) {
    return `be longer than ${NAME_BYTES_MAX} bytes`;
  }
  return undefined;
}
