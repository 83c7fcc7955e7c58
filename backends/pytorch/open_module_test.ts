import assert from "node:assert/strict";
import type { TorchRuntime } from "../../ffi/pytorch/mod.ts";
import { openModule } from "./open_module.ts";

Deno.test("openModule() tells which libtorch packages need", async () => {
  const runtime = { version: "1.13.1", hasPackages: false } as TorchRuntime;
  const file = { path: "/m/1/model.pt2", format: "package", runners: 1, modelName: "m" } as const;
  await assert.rejects(openModule(runtime, file, "cpu"), {
    code: "UNSUPPORTED",
    message: "model 'm' is an AOTInductor package (platform 'torch_aoti'), which libtorch 1.13.1 " +
      "cannot load: 2.6 and newer can",
  });
});
