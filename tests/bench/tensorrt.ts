import process from "node:process";
import { CallList, createCallRunner } from "../../ffi/call_list.ts";
import { loadMachineCode } from "../../ffi/machine_code.ts";
import { addressOfPointer } from "../../ffi/memory.ts";
import { tensor } from "../backends/fixture.ts";
import { openPlan, ramp, reasonToSkip } from "../backends/tensorrt_fixture.ts";
import { identityPlan } from "../native/tensorrt/plan.ts";
import { formatGoal, print } from "./report.ts";

/** Our cost per run, without what the model computes. */
const EXECUTE_US_MAX = 60;
/** Quietest of so many rounds: others use the processors, too. */
const ROUNDS = 40;
const RUNS_PER_ROUND = 250;
/** Calls of one run: device, error, copy in, enqueue, copy out, record, wait. */
const CALLS_PER_RUN = 7;

interface Cost {
  readonly cpuUs: number;
  readonly wallUs: number;
}

/**
 * Measures what a run of a plan costs on the stand-ins, where the model itself costs next to nothing: processor time of
 * all threads and time on the clock, beside a list of as many empty calls.
 */
export async function measureTensorRt(): Promise<void> {
  if (reasonToSkip !== undefined) return print(`tensorrt: ${reasonToSkip}`);
  const bare = await bareCost();
  print(formatRow("list of empty calls", bare));
  let worst = 0;
  for (
    const [name, optimization] of [
      ["tensorrt 16 B", {}],
      ["tensorrt 16 B, CUDA graph", { cuda: { graphs: true } }],
    ] as const
  ) {
    await using opened = await openPlan({ plan: identityPlan(10), config: { optimization } });
    const requests = [opened.request([tensor("INPUT0", "FP32", [1, 4], ramp(4))])];
    const cost = await quietest(async () => {
      const { outcomes } = await opened.instance.execute(requests);
      for (const outcome of outcomes) if ("release" in outcome) outcome.release?.();
    });
    print(formatRow(name, cost));
    worst = Math.max(worst, cost.cpuUs);
  }
  const goal = `at most ${EXECUTE_US_MAX}`;
  print(formatGoal("tensorrt: µs of CPU per execute", worst, goal, worst <= EXECUTE_US_MAX));
}

async function bareCost(): Promise<Cost> {
  const runner = createCallRunner(loadMachineCode());
  const { symbols } = Deno.dlopen("libc.so.6", { getppid: { type: "pointer" } });
  const address = addressOfPointer(symbols.getppid);
  const list = new CallList();
  for (let index = 0; index < CALLS_PER_RUN; index++) {
    list.add("getppid", address, { args: [], expect: "anything" });
  }
  return await quietest(async () => void await list.run(runner));
}

async function quietest(run: () => Promise<void>): Promise<Cost> {
  let best: Cost = { cpuUs: Infinity, wallUs: Infinity };
  for (let round = 0; round < ROUNDS; round++) {
    const before = process.cpuUsage();
    const began = performance.now();
    for (let index = 0; index < RUNS_PER_ROUND; index++) await run();
    const wallUs = (performance.now() - began) * 1000 / RUNS_PER_ROUND;
    const { user, system } = process.cpuUsage(before);
    const cpuUs = (user + system) / RUNS_PER_ROUND;
    best = { cpuUs: Math.min(best.cpuUs, cpuUs), wallUs: Math.min(best.wallUs, wallUs) };
  }
  return best;
}

function formatRow(name: string, { cpuUs, wallUs }: Cost): string {
  return `${name.padEnd(28)} ${cpuUs.toFixed(1).padStart(7)} us CPU ${
    wallUs.toFixed(1).padStart(7)
  } us`;
}

if (import.meta.main) await measureTensorRt();
