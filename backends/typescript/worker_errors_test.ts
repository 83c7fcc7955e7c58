import assert from "node:assert/strict";
import { callerPlace, codedError, textOfError } from "./worker_errors.ts";

const OWN = new URL("./worker_batch.ts", import.meta.url).href;

function thrown(...frames: readonly string[]): Error {
  const error = new RangeError("boom");
  error.stack = ["RangeError: boom", ...frames.map((frame) => `    at ${frame}`)].join("\n");
  return error;
}

Deno.test("textOfError() keeps the frames of the model only", () => {
  const error = thrown(
    "M.execute (file:///r/m/1/model.ts:3:9)",
    `BatchRunner.run (${OWN}:1:2)`,
    "ext:core/01_core.js:1:2",
  );
  const text = "RangeError: boom\n    at M.execute (file:///r/m/1/model.ts:3:9)";
  assert.deepEqual(textOfError(error), { code: "INTERNAL", message: text, isGiven: false });
});

Deno.test("textOfError() tells the cause, and what is no error at all", () => {
  const cause = thrown("file:///r/m/1/model.ts:1:1");
  const error = new Error("outer", { cause });
  error.stack = "Error: outer";
  const { message } = textOfError(error);
  assert.equal(
    message,
    "Error: outer\nCaused by: RangeError: boom\n    at file:///r/m/1/model.ts:1:1",
  );
  assert.match(textOfError({ a: 1 }).message, /thrown: \{ a: 1 \}/);
  assert.ok(textOfError("x".repeat(100_000)).message.length < 20_000);
});

Deno.test("textOfError() says where a permission is declared, instead of the runtime's flag", () => {
  const error = new Error("");
  error.stack = `NotCapable: Requires read access to "/x", run again with the --allow-read flag`;
  assert.equal(
    textOfError(error).message,
    `NotCapable: Requires read access to "/x", the model's config.pbtxt may declare it: parameters, allow_read`,
  );
});

Deno.test("textOfError() has a text for whatever is thrown", () => {
  const own = new Error("own");
  own.cause = own;
  own.stack = "Error: own";
  assert.ok(textOfError(own).message.startsWith("Error: own\nCaused by: Error: own\n"));
  assert.ok(textOfError(own).message.length < 1000);
  const numbered = Object.assign(codedError("NOT_FOUND", ""), { message: 42 });
  assert.deepEqual(textOfError(numbered), { code: "NOT_FOUND", message: "42", isGiven: true });
  assert.equal(textOfError(Object.assign(new Error(), { stack: 7 })).message, "7");
  const hostile = {
    get [Symbol.for("Deno.customInspect")](): unknown {
      throw new Error("no");
    },
  };
  assert.match(textOfError(hostile).message, /^thrown: a value that throws/);
});

Deno.test("textOfError() takes over the code and the text that a model gives", () => {
  const given = { code: "NOT_FOUND", message: "none", isGiven: true };
  assert.deepEqual(textOfError(codedError("NOT_FOUND", "none")), given);
  assert.equal(textOfError(Object.assign(new Error("x"), { code: "EACCES" })).code, "INTERNAL");
  assert.throws(() => codedError("NOPE" as never, ""), /'NOPE'.*INVALID_ARG/);
});

Deno.test("callerPlace() finds the model's line", () => {
  const { stack } = thrown(`Object.info (${OWN}:5:5)`, "M.execute (file:///r/m/1/model.ts:12:9)");
  assert.deepEqual(callerPlace(stack!), { file: "model.ts", line: 12 });
  assert.equal(callerPlace("Error"), undefined);
});
