import { setImmediate } from "node:timers";
import type { ModelConfig } from "../../../proto/gen/model_config_pb.ts";
import { createStateRules, type StateRules } from "./sequence_state.ts";
import { SequenceWorld, worldConfig, type WorldOptions } from "./sequence_world_fixture.ts";

/** Interleavings per strategy. */
const RUN_COUNT = 50_000;
const OPERATION_COUNT = 10;
const FIRST_SEED = 20_250_101;
const IDS = [1n, 2n, 3n, "1", "two"] as const;

/** Numbers 0 ≤ n < 1 that are the same in every run. */
function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

type Shape = Omit<WorldOptions, "random" | "stateRules">;
interface Variant {
  readonly shape: Shape;
  readonly config: ModelConfig;
  readonly stateRules: StateRules | undefined;
}

async function createVariants(strategy: Shape["strategy"]): Promise<Variant[]> {
  const variants: Variant[] = [];
  for (let index = 0; index < 24; index++) {
    const shape: Shape = {
      strategy,
      maxBatchSize: [1, 2, 3][index % 3]!,
      instanceCount: index % 4 === 3 ? 2 : 1,
      maxQueueDelayMs: index % 2 === 0 ? 0 : 3,
      minimumSlotUtilization: [0, 0.6, 1][(index >> 1) % 3]!,
      maxCandidates: [0, 1, 4][(index >> 2) % 3]!,
      hasVariableShape: index % 5 === 4,
    };
    const config = worldConfig(shape);
    const hasState = index % 3 !== 0;
    const stateRules = hasState ? await createStateRules(config, "/nowhere") : undefined;
    variants.push({ shape, config, stateRules });
  }
  return variants;
}

/** One interleaving of arrival, END, cancel, backlog timeout, idle timeout, failure and stop. */
async function runWorld({ shape, config, stateRules }: Variant, seed: number): Promise<void> {
  const random = seededRandom(seed);
  const world = new SequenceWorld(config, { ...shape, stateRules, random });
  for (let step = 0; step < OPERATION_COUNT; step++) {
    const kind = random();
    if (kind < 0.6) {
      world.send(IDS[Math.floor(random() * IDS.length)]!, {
        start: random() < 0.5,
        end: random() < 0.25,
        timeoutUs: random() < 0.2 ? Math.ceil(random() * 8000) : 0,
      });
    } else if (kind < 0.72) world.cancel();
    else if (kind < 0.94) await world.clock.advance(Math.floor(random() * 4));
    else await world.clock.advance(8 + Math.floor(random() * 6));
  }
  await world.finish(random() < 0.5);
}

/** Runs `work`; what fails in a microtask, where nobody can catch it, fails it as well. */
async function withUncaught(work: (check: () => void) => Promise<void>): Promise<void> {
  const uncaught: unknown[] = [];
  const onError = (event: ErrorEvent | PromiseRejectionEvent) => {
    event.preventDefault();
    uncaught.push("reason" in event ? event.reason : event.error);
  };
  globalThis.addEventListener("error", onError);
  globalThis.addEventListener("unhandledrejection", onError);
  try {
    await work(() => {
      if (uncaught.length > 0) throw uncaught[0];
    });
  } finally {
    globalThis.removeEventListener("error", onError);
    globalThis.removeEventListener("unhandledrejection", onError);
  }
}

async function runAll(strategy: Shape["strategy"]): Promise<void> {
  const variants = await createVariants(strategy);
  // Refusals are many, and where they come from is of no interest.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  await withUncaught(async (check) => {
    for (let run = 0; run < RUN_COUNT; run++) {
      const seed = FIRST_SEED + run;
      try {
        await runWorld(variants[run % variants.length]!, seed);
        // Events of what was not caught come with the next task.
        if (run % 500 === 0) await new Promise((resolve) => setImmediate(resolve));
        check();
      } catch (cause) {
        const place = `variant ${run % variants.length} of ${strategy}`;
        throw new Error(`Seed ${seed} or up to 500 before it, ${place}`, { cause });
      }
    }
  }).finally(() => Error.stackTraceLimit = stackTraceLimit);
}

Deno.test("SequenceBatcher (direct) never lets a state reach another sequence", () =>
  runAll("direct"));

Deno.test("SequenceBatcher (oldest) never lets a state reach another sequence", () =>
  runAll("oldest"));
