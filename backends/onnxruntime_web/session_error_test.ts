import assert from "node:assert/strict";
import { sessionError } from "./session_error.ts";

Deno.test("sessionError() gives the words of the native runtime", () => {
  const text = "failed to call OrtRun(). ERROR_CODE: 2, ERROR_MESSAGE: Got: 3\nExpected: 4\n";
  const { code, message } = sessionError(text, false);
  assert.deepEqual([code, message], ["INTERNAL", "onnx runtime error 2: Got: 3\nExpected: 4"]);
});

Deno.test("sessionError() tells faults of clients, types and memory apart", () => {
  const codeOf = (text: string, isInput = false) => sessionError(text, isInput).code;
  assert.equal(codeOf("BYTES data of input 'X' …", true), "INVALID_ARG");
  assert.equal(codeOf("unsupported data type: 16"), "UNSUPPORTED");
  assert.match(sessionError("unsupported data type: 16", false).message, /BF16/);
  assert.equal(codeOf("Array buffer allocation failed"), "UNAVAILABLE");
  assert.equal(codeOf("something else"), "INTERNAL");
});

Deno.test("sessionError() tells the way out of a model that WebGPU does not run alone", () => {
  const text =
    "Can't create a session. ERROR_CODE: 1, ERROR_MESSAGE: This session contains graph " +
    "nodes that are assigned to the default CPU EP, but fallback to CPU EP has been explicitly " +
    "disabled by the user.";
  const { code, message } = sessionError(text, false);
  assert.equal(code, "UNSUPPORTED");
  assert.match(
    message,
    /cannot run on WebGPU alone.*disable_cpu_ep_fallback.*KIND_CPU or KIND_AUTO/,
  );
});
