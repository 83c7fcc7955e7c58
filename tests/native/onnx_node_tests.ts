/**
 * Runs the ONNX node tests (Debian's libonnx-testdata) on the bare backend and on the runtime below it.
 *
 *   deno run -A tests/native/onnx_node_tests.ts DATA_FOLDER [RESULT_FILE]
 *
 * DATA_FOLDER holds `node`, `simple`, …; RESULT_FILE gets the names of those that pass on the bare runtime.
 */
import { ServerError } from "../../proto/status.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { OrtEnvironment, OrtSession } from "../../ffi/onnxruntime/mod.ts";
import { CStringArray, pointerAt } from "../../ffi/memory.ts";
import { InputFeed } from "../../backends/onnxruntime/input_feed.ts";
import { collectValue } from "../../backends/onnxruntime/output_collect.ts";
import { createRunPlan } from "../../backends/onnx_run_plan.ts";
import { openInstance, outputsOf } from "../backends/fixture.ts";
import { type DataSet, readDataSets } from "../fixtures/node_cases.ts";
import { tensorsAgree } from "../fixtures/tensor_compare.ts";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";

const GROUPS = ["node", "simple", "pytorch-converted", "pytorch-operator"];

/** Tests are left out by the first byte of their name's digest, so that others can check with those. */
const LEFT_OUT_BELOW = 20;

async function isLeftOut(name: string): Promise<boolean> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(name));
  return new Uint8Array(digest)[0]! < LEFT_OUT_BELOW;
}

/** Runs the session directly, all outputs made by the runtime. */
async function runBare(path: string, { inputs, expected }: DataSet): Promise<Tensor[]> {
  using session = await OrtSession.open(environment, path);
  const plan = createRunPlan(create(ModelConfigSchema, {}), session.signature);
  using feed = new InputFeed(environment);
  const values = BigUint64Array.from(
    inputs.map((tensor) => feed.feed(plan.inputs.get(tensor.name)!, [tensor], tensor.shape)),
  );
  const results = new BigUint64Array(expected.length);
  const inputNames = new CStringArray(inputs.map(({ name }) => name));
  const outputNames = new CStringArray(expected.map(({ name }) => name));
  const status = await environment.calls.Run(
    session.pointer,
    null,
    inputNames.array,
    values,
    BigInt(inputNames.length),
    outputNames.array,
    BigInt(outputNames.length),
    results,
  );
  if (status !== null) throw new ServerError("INTERNAL", "the run failed");
  return expected.map(({ name }, index) =>
    collectValue(environment, plan.outputs.get(name)!, pointerAt(results[index]!)!).tensor
  );
}

/** Runs through the backend with a completed configuration, several times to pass through all of its ways. */
async function runBackend(
  model: Uint8Array,
  dataSets: readonly DataSet[],
): Promise<string | undefined> {
  await using opened = await openInstance("onnxruntime", { model });
  const { config } = opened.source;
  for (const { inputs, expected } of dataSets) {
    for (let run = 0; run < 12; run++) {
      const request = opened.request(inputs, { outputs: expected.map(({ name }) => name) });
      const { outcomes } = await opened.instance.execute([request]);
      const outputs = outputsOf(outcomes[0]);
      for (const [index, output] of outputs.entries()) {
        const wanted = expected[index]!;
        const isVector = wanted.shape.length === 0 && config.maxBatchSize === 0;
        const fault = tensorsAgree(output, isVector ? { ...wanted, shape: [1] } : wanted);
        if (fault !== undefined) return `run ${run}: ${fault}`;
      }
      (outcomes[0] as { release?: () => void }).release?.();
    }
  }
}

const [root, resultFile] = Deno.args;
if (root === undefined) throw new TypeError("Expected the data folder as first argument");
const environment = OrtEnvironment.open();
const passed: string[] = [];
const counts = {
  total: 0,
  leftOut: 0,
  unusable: 0,
  bareFailed: 0,
  barePassed: 0,
  backendFailed: 0,
};
for (const group of GROUPS) {
  const names = [...Deno.readDirSync(`${root}/${group}`)].map(({ name }) => name).sort();
  for (const each of names) {
    const name = `${group}/${each}`;
    const folder = `${root}/${name}`;
    counts.total++;
    if (await isLeftOut(name)) {
      counts.leftOut++;
      continue;
    }
    const model = Deno.readFileSync(`${folder}/model.onnx`);
    let dataSets: DataSet[];
    try {
      dataSets = readDataSets(folder, model);
    } catch (error) {
      counts.unusable++;
      console.log(`unusable  ${name}: ${(error as Error).message}`);
      continue;
    }
    let bareFault: string | undefined;
    try {
      for (const dataSet of dataSets) {
        const outputs = await runBare(`${folder}/model.onnx`, dataSet);
        outputs.forEach((output, k) => bareFault ??= tensorsAgree(output, dataSet.expected[k]!));
      }
    } catch (error) {
      bareFault = (error as Error).message.slice(0, 100);
    }
    if (bareFault !== undefined) {
      counts.bareFailed++;
      console.log(`bare      ${name}: ${bareFault}`);
      continue;
    }
    counts.barePassed++;
    passed.push(name);
    const fault = await runBackend(model, dataSets).catch((error: Error) => error.message);
    if (fault === undefined) continue;
    counts.backendFailed++;
    console.log(`BACKEND   ${name}: ${fault.slice(0, 200)}`);
  }
}
console.log(JSON.stringify(counts));
if (resultFile !== undefined) Deno.writeTextFileSync(resultFile, passed.join("\n") + "\n");
