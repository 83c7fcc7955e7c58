import { ONNX_DATA_TYPE as TYPE, identityModel, lookupModel } from "../fixtures/onnx_builder.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { openInstance } from "./fixture.ts";

runBackendSuite({
  name: "onnxruntime_web",
  open: (config, instanceCount = 1) =>
    openInstance("onnxruntime_web", {
      model: identityModel([{ type: TYPE.FLOAT, dims: ["batch", 4] }]),
      config,
      instanceCount,
    }),
  async failing() {
    const opened = await openInstance("onnxruntime_web", { model: lookupModel() });
    return { ...opened, failing: 1, [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose]() };
  },
});
