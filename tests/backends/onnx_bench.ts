/**
 * CPU microseconds per `execute` of the onnxruntime backend against bare calls of the runtime.
 *
 *   deno run -A tests/backends/onnx_bench.ts
 */
import process from "node:process";
import { CStringArray } from "../../ffi/memory.ts";
import { OrtEnvironment, OrtSession, OrtTensor } from "../../ffi/onnxruntime/mod.ts";
import { identityModel, ONNX_DATA_TYPE } from "../fixtures/onnx_builder.ts";
import { openInstance, tensor } from "./fixture.ts";

const CASES = [
  { name: "FP32[16] identity", dims: ["batch", 16], shape: [1, 16], count: 40_000 },
  {
    name: "602,112-byte identity",
    dims: ["batch", 3, 224, 224],
    shape: [1, 3, 224, 224],
    count: 2_000,
  },
];

async function measure(name: string, count: number, run: () => unknown): Promise<void> {
  let best = Infinity;
  let wall = Infinity;
  for (let round = 0; round < 5; round++) {
    const cpu = process.cpuUsage();
    const start = performance.now();
    for (let index = 0; index < count; index++) {
      const pending = run();
      if (pending instanceof Promise) await pending;
    }
    const { user, system } = process.cpuUsage(cpu);
    wall = Math.min(wall, (performance.now() - start) * 1000 / count);
    best = Math.min(best, (user + system) / count);
  }
  console.log(`${name.padEnd(60)} cpu ${best.toFixed(2)} us  wall ${wall.toFixed(2)} us`);
}

for (const { name, dims, shape, count } of CASES) {
  const model = identityModel([{ type: ONNX_DATA_TYPE.FLOAT, dims }]);
  const environment = OrtEnvironment.open();
  const session = await OrtSession.open(environment, model);
  const data = new Uint8Array(4 * shape.reduce((product, dim) => product * dim, 1));
  const options = { shape, elementType: ONNX_DATA_TYPE.FLOAT };
  const input = OrtTensor.over(environment, data, options);
  const output = OrtTensor.over(environment, data.slice(), options);
  const inputs = BigUint64Array.of(input.address);
  const outputs = BigUint64Array.of(output.address);
  const inputNames = new CStringArray(["INPUT0"]);
  const outputNames = new CStringArray(["OUTPUT0"]);
  const args = [
    session.pointer,
    null,
    inputNames.array,
    inputs,
    1n,
    outputNames.array,
    1n,
    outputs,
  ] as const;
  await measure(`${name}: bare Run, blocking`, count, () => environment.calls.RunBlocking(...args));
  await measure(`${name}: bare Run, on the pool`, count, () => environment.calls.Run(...args));
  for (const placed of ["aligned", "unaligned"]) {
    await using opened = await openInstance("onnxruntime", { model });
    const bytes = new Uint8Array(data.length + 1).subarray(placed === "aligned" ? 0 : 1);
    const request = opened.request([
      { ...tensor("INPUT0", "FP32", shape), data: bytes.subarray(0, data.length) },
    ]);
    await measure(`${name}: execute, ${placed} input`, count, async () => {
      const { outcomes } = await opened.instance.execute([request]);
      const outcome = outcomes[0]!;
      if (!("outputs" in outcome)) throw new Error(`no outputs: ${Deno.inspect(outcome)}`);
      outcome.release?.();
    });
  }
}
