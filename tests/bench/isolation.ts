import { identityModel, ONNX_DATA_TYPE } from "../fixtures/onnx_builder.ts";
import { openInstance, tensor } from "../backends/fixture.ts";
import { formatGoal, print } from "./report.ts";

/** What a process of its own may add to an execution of small tensors. */
const SMALL_EXTRA_US_MAX = 150;
/** Quietest of so many rounds: others use the processors, too. */
const ROUNDS = 400;
const CASES = [
  { name: "64 B", dims: ["batch", 16], shape: [1, 16], runsPerRound: 40 },
  { name: "602 KB", dims: ["batch", 3, 224, 224], shape: [1, 3, 224, 224], runsPerRound: 10 },
];

/** Measures what `isolation=process` adds to an execution of an ONNX model that computes nothing. */
export async function measureIsolation(): Promise<void> {
  const extras: number[] = [];
  for (const each of CASES) {
    const inside = await executeUs(each, {});
    const apart = await executeUs(each, { isolation: "process" });
    extras.push(apart - inside);
    print(
      `isolation, ${each.name.padEnd(6)} ${inside.toFixed(1).padStart(7)} us in the server, ` +
        `${apart.toFixed(1).padStart(7)} us in a process of its own`,
    );
  }
  const [small] = extras as [number];
  const goal = `at most ${SMALL_EXTRA_US_MAX}`;
  print(
    formatGoal("isolation: µs more per small execute", small, goal, small <= SMALL_EXTRA_US_MAX),
  );
}

async function executeUs(
  { dims, shape, runsPerRound }: typeof CASES[number],
  settings: Record<string, string>,
): Promise<number> {
  const model = identityModel([{ type: ONNX_DATA_TYPE.FLOAT, dims }]);
  await using opened = await openInstance("onnxruntime", { model, settings });
  const { instance, request } = opened;
  const requests = [request([tensor("INPUT0", "FP32", shape)])];
  let best = Infinity;
  for (let round = 0; round < ROUNDS; round++) {
    const began = performance.now();
    for (let index = 0; index < runsPerRound; index++) {
      const { outcomes } = await instance.execute(requests);
      for (const outcome of outcomes) if ("release" in outcome) outcome.release?.();
    }
    best = Math.min(best, (performance.now() - began) * 1000 / runsPerRound);
  }
  return best;
}

if (import.meta.main) await measureIsolation();
