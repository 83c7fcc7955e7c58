import { doesNotThrow, throws } from "node:assert/strict";
import { checkModelName } from "./model_name.ts";
import { ServerError } from "./status.ts";

Deno.test("checkModelName() accepts what is one path segment", () => {
  for (
    const name of [
      "m",
      "...",
      "model..1",
      "..my_model",
      "größe",
      "a b",
      "%2e%2e",
      "-",
      "a;b",
      "a\\b",
    ]
  ) {
    doesNotThrow(() => checkModelName(name), name);
  }
});

Deno.test("checkModelName() refuses paths", () => {
  for (
    const name of ["..", " ..", ".", "a/b", "../x", "model/", "/etc", "m; touch /tmp/x"]
  ) {
    throws(
      () => checkModelName(name),
      new ServerError(
        "INVALID_ARG",
        `invalid model name '${name}', model name must not contain path traversal characters`,
      ),
    );
  }
});

Deno.test("checkModelName() refuses empty names, control characters and endless names", () => {
  for (const name of ["", " ", "\t\n"]) {
    throws(() => checkModelName(name), /^ServerError: Model name cannot be empty\./);
  }
  throws(
    () => checkModelName("a\nb"),
    /model name 'a\\u000ab', model name must not contain control/,
  );
  throws(() => checkModelName("a\0b"), /must not contain control/);
  throws(() => checkModelName("é".repeat(200)), /must not be longer than 255 bytes/);
});
