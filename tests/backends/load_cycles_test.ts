import assert from "node:assert/strict";
import { executeRequest } from "../../backends/execute_request_fixture.ts";
import { create } from "@bufbuild/protobuf";
import type { Backend } from "../../backends/backend.ts";
import { fakeHost } from "../../backends/model_host_fixture.ts";
import { openBackend } from "../../backends/registry.ts";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { buildModel, ONNX_DATA_TYPE as TYPE } from "../fixtures/onnx_builder.ts";
import { floats, outputsOf, tensor } from "./fixture.ts";

const CYCLES = 200;
const SETTLED = 20;
const COLUMNS = 4096;
const ROWS = 640;

/** OUTPUT0 = INPUT0 · WEIGHT, with 10 MB of weights. */
function largeModel(): Uint8Array {
  const weights = new Float32Array(ROWS * COLUMNS).fill(0.5);
  return buildModel({
    nodes: [{ op: "MatMul", inputs: ["INPUT0", "WEIGHT"], outputs: ["OUTPUT0"] }],
    inputs: [{ name: "INPUT0", type: TYPE.FLOAT, dims: ["batch", ROWS] }],
    outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT, dims: ["batch", COLUMNS] }],
    initializers: [{
      name: "WEIGHT",
      type: TYPE.FLOAT,
      dims: [ROWS, COLUMNS],
      raw: new Uint8Array(weights.buffer),
    }],
  });
}

/** Runs in a process of its own, whose memory nothing else changes. Returns the resident size after each cycle. */
async function loadCycles(): Promise<number[]> {
  const folder = await Deno.makeTempDir({ prefix: "nereid_" });
  await Deno.mkdir(`${folder}/1`);
  await Deno.writeFile(`${folder}/1/model.onnx`, largeModel());
  const backend = await openBackend("onnxruntime", {
    settings: new Map(),
    log: { info() {}, warning() {}, error() {}, verbose() {} },
    now: () => performance.now(),
    countBatchRetry() {},
    host: fakeHost(),
  })!;
  const sizes: number[] = [];
  for (let cycle = 0; cycle < CYCLES; cycle++) {
    await loadOnce(backend, folder);
    sizes.push(Deno.memoryUsage().rss);
  }
  await Deno.remove(folder, { recursive: true });
  return sizes;
}

async function loadOnce(backend: Backend, modelDirectory: string): Promise<void> {
  const config = create(ModelConfigSchema, { name: "m" });
  const versionDirectory = `${modelDirectory}/1`;
  const source = { name: "m", version: 1, modelDirectory, versionDirectory, config };
  await backend.autoComplete(source);
  await using model = await backend.openModel(source);
  for (const name of ["m_0", "m_1"]) {
    await using instance = await model.createInstance({ name, kind: "KIND_CPU", deviceId: 0 });
    const input = tensor("INPUT0", "FP32", [1, ROWS], new Array<number>(ROWS).fill(1));
    const { outcomes } = await instance.execute([
      executeRequest({ inputs: [input], outputs: ["OUTPUT0"] }),
    ]);
    assert.equal(floats(outputsOf(outcomes[0])[0]!)[COLUMNS - 1], ROWS / 2);
    (outcomes[0] as { release?: () => void }).release?.();
  }
}

Deno.test("200 load and unload cycles of a 10 MB model leave no memory behind", async () => {
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", new URL(import.meta.url).pathname, "cycles"],
    stdout: "piped",
    stderr: "inherit",
  });
  const { code, stdout } = await child.output();
  assert.equal(code, 0);
  const sizes: number[] = JSON.parse(new TextDecoder().decode(stdout));
  assert.equal(sizes.length, CYCLES);
  const mean = (list: number[]) => list.reduce((sum, size) => sum + size, 0) / list.length;
  const start = mean(sizes.slice(SETTLED, 2 * SETTLED));
  const end = mean(sizes.slice(-SETTLED));
  const change = (end - start) / start;
  assert.ok(Math.abs(change) <= 0.05, `memory went from ${start} to ${end} bytes`);
});

if (Deno.args[0] === "cycles") console.log(JSON.stringify(await loadCycles()));
