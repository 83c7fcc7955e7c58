import assert from "node:assert/strict";
import { OrtError } from "../../ffi/onnxruntime/mod.ts";
import {
  countOperators,
  explainSessionError,
  lackedOperators,
  lacksOperators,
  nodesOnCpu,
} from "./session_error.ts";

const PLACE = { path: "/none", libraryPath: "/lib/libonnxruntime.so", version: "1.30.0" };
const CPU = "CPUExecutionProvider";
const NODES = [
  { provider: CPU, node: "a", operator: "Slice" },
  { provider: "WebGpuExecutionProvider", node: "b", operator: "Add" },
  { provider: CPU, node: "", operator: "Slice" },
  { provider: CPU, node: "c", operator: "Gather" },
];

Deno.test("lackedOperators() names operators and nodes of the CPU, and the way out", () => {
  const { code, message } = lackedOperators("m", { device: "webgpu" }, NODES);
  assert.equal(code, "UNSUPPORTED");
  assert.match(
    message,
    /^model 'm' cannot run on WebGPU alone, which lacks 'Slice' \(node 'a'\), /,
  );
  assert.match(message, /'Slice', 'Gather' \(node 'c'\): without the parameter.*KIND_CPU/);
});

Deno.test("lackedOperators() names no more than a few", () => {
  const nodes = Array.from(
    { length: 9 },
    (_, i) => ({ provider: CPU, node: `n${i}`, operator: "X" }),
  );
  assert.match(
    lackedOperators("m", { device: "cuda" }, nodes).message,
    /\(node 'n4'\) and 4 more:/,
  );
});

Deno.test("countOperators() counts those of nodesOnCpu()", () => {
  assert.equal(countOperators(nodesOnCpu(NODES)), "Slice (2), Gather");
});

Deno.test("lacksOperators() knows the runtime's words", () => {
  const words = "nodes that are assigned to the default CPU EP, but fallback to CPU EP has been " +
    "explicitly disabled by the user.";
  assert.equal(lacksOperators(new OrtError(1, words)), true);
  assert.equal(lacksOperators(new OrtError(1, "out of memory")), false);
});

const HINTS: [string, RegExp][] = [
  [
    "Could not find an implementation for Foo(1) node with name 'x'",
    /'x'; .*another opset.*library=/,
  ],
  [
    "Failed to load library libonnxruntime_providers_cuda.so: libcudnn.so.9",
    /cuDNN.*LD_LIBRARY_PATH|LD_LIBRARY_PATH.*cuDNN/,
  ],
];

for (const [words, hint] of HINTS) {
  Deno.test(`explainSessionError() gives a way out of: ${words}`, async () => {
    const error = await explainSessionError(new OrtError(1, words), PLACE);
    assert.equal(error.code, "INTERNAL");
    assert.ok(error.message.startsWith(`onnx runtime error 1: ${words}`));
    assert.match(error.message, hint);
  });
}

Deno.test("lackedOperators() names the accelerator of a CPU instead of the CPU", () => {
  const place = { device: "cpu", accelerator: "OpenVINO" } as const;
  const { message } = lackedOperators("m", place, NODES);
  assert.match(message, /^model 'm' cannot run on OpenVINO alone, which lacks '/);
  assert.match(message, /run on ONNX Runtime's own provider for CPUs$/);
});
