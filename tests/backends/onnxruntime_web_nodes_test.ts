import assert from "node:assert/strict";
import { OnnxWebBackend } from "../../backends/onnxruntime_web/mod.ts";
import { type DataSet, findNodeData, readDataSets } from "../fixtures/node_cases.ts";
import { tensorsAgree } from "../fixtures/tensor_compare.ts";
import { openInstance, outputsOf } from "./fixture.ts";
import { InProcessWorker } from "./shared_runtime.ts";

/** ONNX's own tests that pass on the native runtime: this one passes all of them. */
const NATIVE = new URL("../native/onnx_node_tests_passed.txt", import.meta.url);
const names = Deno.readTextFileSync(NATIVE).trim().split("\n");
const data = await findNodeData();

/** What differs from the right outputs; undefined when nothing does. */
async function runCase(folder: string): Promise<string | undefined> {
  const model = await Deno.readFile(`${folder}/model.onnx`);
  const dataSets = readDataSets(folder, model);
  await using opened = await openInstance("onnxruntime_web", {
    model,
    settings: { "intra_op_thread_count": "1" },
    openBackend: (context) =>
      new OnnxWebBackend(context, "onnxruntime_web", {
        startWorker: () => new InProcessWorker() as unknown as Worker,
      }),
  });
  if (dataSets.length === 0) return "has no data";
  for (const dataSet of dataSets) {
    const fault = await compare(opened, dataSet);
    if (fault !== undefined) return fault;
  }
}

async function compare(
  { instance, request, source }: Awaited<ReturnType<typeof openInstance>>,
  { inputs, expected }: DataSet,
): Promise<string | undefined> {
  const { outcomes } = await instance.execute([
    request(inputs, { outputs: expected.map(({ name }) => name) }),
  ]);
  for (const [index, output] of outputsOf(outcomes[0]).entries()) {
    const wanted = expected[index]!;
    const isVector = wanted.shape.length === 0 && source.config.maxBatchSize === 0;
    const fault = tensorsAgree(output, isVector ? { ...wanted, shape: [1] } : wanted);
    if (fault !== undefined) return fault;
  }
}

const CHUNK = 100;
for (let start = 0; start < names.length; start += CHUNK) {
  const chunk = names.slice(start, start + CHUNK);
  Deno.test({
    name: `onnxruntime_web: ONNX node tests ${start} to ${start + chunk.length - 1} pass`,
    ignore: data === undefined,
    // The runtime keeps its threads and files for the next model.
    sanitizeOps: false,
    sanitizeResources: false,
    async fn() {
      const faults: string[] = [];
      for (const name of chunk) {
        const fault = await runCase(`${data}/${name}`).catch((error: Error) => error.message);
        if (fault !== undefined) faults.push(`${name}\t${fault}`);
      }
      assert.equal(faults.join("\n"), "");
    },
  });
}
