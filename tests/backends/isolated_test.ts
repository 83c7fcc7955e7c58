import assert from "node:assert/strict";
import { identityModel, lookupModel, ONNX_DATA_TYPE as TYPE } from "../fixtures/onnx_builder.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { openInstance } from "./fixture.ts";

const ISOLATED = { isolation: "process" };

runBackendSuite({
  name: "onnxruntime, isolated",
  open: (config, instanceCount = 1) =>
    openInstance("onnxruntime", {
      model: identityModel([{ type: TYPE.FLOAT, dims: ["batch", 4] }]),
      config,
      instanceCount,
      settings: ISOLATED,
    }),
  async failing() {
    const opened = await openInstance("onnxruntime", { model: lookupModel(), settings: ISOLATED });
    return { ...opened, failing: 1, [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose]() };
  },
});

Deno.test("onnxruntime, isolated: what is wrong with a model is told as without", async () => {
  const open = (settings: Record<string, string>) =>
    openInstance("onnxruntime", { model: new Uint8Array(100), settings }).then(
      () => assert.fail("It was opened"),
      ({ message, code }) => ({ message: message.replace(/nereid_\w+/g, "DIR"), code }),
    );
  assert.deepEqual(await open(ISOLATED), await open({}));
});

Deno.test("onnxruntime, isolated: a setting that cannot be is refused", async () => {
  await assert.rejects(
    openInstance("onnxruntime", { settings: { isolation: "container" } }),
    /--backend-config 'isolation' must be 'process' or 'none', got 'container'/,
  );
});
