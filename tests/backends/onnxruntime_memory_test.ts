import assert from "node:assert/strict";
import { buildModel, identityModel, ONNX_DATA_TYPE as TYPE } from "../fixtures/onnx_builder.ts";
import type { ExecuteOutcome } from "../../backends/backend.ts";
import { openInstance, outputsOf, tensor } from "./fixture.ts";

const COLUMNS = 25_000;

/** One row of numbers from `start` on, at an offset inside a larger block. */
function rowAt(start: number, offset: number) {
  const numbers = Float32Array.from({ length: COLUMNS }, (_, index) => start + index);
  const block = new Uint8Array(COLUMNS * 4 + 64);
  const data = block.subarray(offset, offset + COLUMNS * 4);
  data.set(new Uint8Array(numbers.buffer));
  return tensor("INPUT0", "FP32", [1, COLUMNS], data);
}

function release(outcome: ExecuteOutcome | undefined): void {
  if (outcome !== undefined && "outputs" in outcome) outcome.release?.();
}

Deno.test("onnxruntime: large inputs pass from any offset, alone and joined", async () => {
  await using opened = await openInstance("onnxruntime", {
    model: identityModel([{ type: TYPE.FLOAT, dims: ["batch", "columns"] }]),
  });
  for (const offset of [0, 1, 4, 6, 64]) {
    const rows = [1, 2, 3].map((start) => rowAt(start, offset));
    const requests = rows.map((row) => opened.request([row]));
    for (const batch of [requests.slice(0, 1), requests]) {
      const { outcomes } = await opened.instance.execute(batch);
      outcomes.forEach((outcome, index) => {
        const [output] = outputsOf(outcome);
        assert.deepEqual([...output!.shape], [1, COLUMNS]);
        assert.ok(output!.data.every((byte, at) => byte === rows[index]!.data[at]));
        release(outcome);
      });
    }
  }
});

Deno.test("onnxruntime: memory of the runtime stays until the last request released it", async () => {
  // The shape of the output depends on values, so the runtime allocates it.
  const model = buildModel({
    nodes: [{
      op: "Compress",
      inputs: ["INPUT0", "all"],
      outputs: ["OUTPUT0"],
      attributes: { axis: 1 },
    }],
    inputs: [{ name: "INPUT0", type: TYPE.FLOAT, dims: ["batch", COLUMNS] }],
    outputs: [{ name: "OUTPUT0", type: TYPE.FLOAT, dims: ["batch", "kept"] }],
    initializers: [{
      name: "all",
      type: TYPE.BOOL,
      dims: [COLUMNS],
      raw: new Uint8Array(COLUMNS).fill(1),
    }],
  });
  await using opened = await openInstance("onnxruntime", { model });
  const rows = [5, 6].map((start) => rowAt(start, 0));
  const { outcomes } = await opened.instance.execute(rows.map((row) => opened.request([row])));
  const [first, second] = outcomes.map((outcome) => outputsOf(outcome)[0]!);
  assert.equal(first!.data.buffer, second!.data.buffer);
  release(outcomes[0]);
  assert.deepEqual(second!.data.slice(0, 64), rows[1]!.data.slice(0, 64));
  release(outcomes[1]);
  assert.equal(second!.data.length, 0);
});

Deno.test("onnxruntime: outputs outlive their model", async () => {
  const opened = await openInstance("onnxruntime", {
    model: identityModel([{ type: TYPE.FLOAT, dims: ["batch", COLUMNS] }]),
  });
  const row = rowAt(9, 0);
  const { outcomes } = await opened.instance.execute([opened.request([row])]);
  await opened[Symbol.asyncDispose]();
  const [output] = outputsOf(outcomes[0]);
  assert.deepEqual(output!.data.slice(-64), row.data.slice(-64));
  release(outcomes[0]);
});

Deno.test("onnxruntime: many runs in flight of many models give each its own answer", async () => {
  const opened = await Promise.all(
    [1, 2, 3].map(() =>
      openInstance("onnxruntime", {
        model: identityModel([{ type: TYPE.FLOAT, dims: ["batch", "columns"] }]),
        instanceCount: 8,
      })
    ),
  );
  await Promise.all(
    opened.flatMap(({ instances, request }, model) =>
      instances.map(async (instance, which) => {
        for (let run = 0; run < 10; run++) {
          const row = rowAt(model * 1000 + which * 100 + run, run % 2);
          const { outcomes } = await instance.execute([request([row])]);
          assert.deepEqual(outputsOf(outcomes[0])[0]!.data.slice(0, 256), row.data.slice(0, 256));
          release(outcomes[0]);
        }
      })
    ),
  );
  for (const each of opened) await each[Symbol.asyncDispose]();
});
