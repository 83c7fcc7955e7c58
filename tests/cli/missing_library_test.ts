import assert from "node:assert/strict";
import { createServer } from "../../mod.ts";
import { makeRepository } from "./server_run.ts";

Deno.test("without the ONNX Runtime library everything but ONNX models is served", async () => {
  await using repository = await makeRepository();
  await Deno.mkdir(`${repository.path}/net/1`, { recursive: true });
  await Deno.writeTextFile(`${repository.path}/net/1/model.onnx`, "never read");
  await using server = createServer({
    modelRepository: repository.path,
    flags: ["--backend-config=onnxruntime,library=/nowhere/libonnxruntime.so", "--log-error=false"],
  });
  const { models } = await server.start();
  assert.deepEqual(models.map(({ name, state }) => [name, state]), [
    ["echo", "READY"],
    ["net", "UNAVAILABLE"],
  ]);
  assert.match(
    models[1]!.reason,
    /^Unavailable: Cannot open the ONNX Runtime library; tried: --backend-config=onnxruntime,library: '\/nowhere\/libonnxruntime\.so': /,
  );
});
