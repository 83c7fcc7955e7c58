import { dirname, join } from "node:path";
import { SMALL } from "./bench_models.ts";
import { measure, type MeasureOptions, type Target } from "./measure.ts";
import { writeRequest } from "./payload.ts";
import { formatCell, formatGoal, print } from "./report.ts";

/** A model that is loaded and unloaded beside another, and one that is loaded anew while it serves. */
const GUEST = "swap_guest";
const SWAPPED = "swap_served";
const CYCLES = 1000;
/** After so many cycles the heap of V8, which takes its time, does not grow any more. */
const WARM_CYCLES = 2000;
/** Twenty loads and unloads per second beside the measured model. */
const PAUSE_MS = 50;
const P99_LIMIT = 1.5;
const RSS_LIMIT = 0.05;

/** What the comparison needs. */
export interface SwapParts {
  readonly directory: string;
  /** Where the models of the measurement lie. */
  readonly repository: string;
  readonly options: MeasureOptions;
  /** Cycles of each kind; 1,000 when absent. */
  readonly cycles?: number;
  readonly start: (flags: readonly string[]) => Promise<Target & AsyncDisposable>;
}

/** Compares a model at rest with the same while another comes and goes, and counts what a thousand swaps cost. */
export async function compareSwaps(parts: SwapParts): Promise<void> {
  for (const model of [GUEST, SWAPPED]) await copyModel(parts.repository, model);
  const flags = [
    "--model-control-mode=explicit",
    ...[SMALL.model, SWAPPED].map((name) => `--load-model=${name}`),
  ];
  await using ours = await parts.start(flags);
  const request = await writeRequest(SMALL, "http-binary", parts.directory);
  const atRest = await measure(ours, request, 1, parts.options);
  print(formatCell(`ours  ${SMALL.model} at rest 1`, atRest, []));
  const swaps = repeat(async () => {
    await control(ours, GUEST, "load");
    await control(ours, GUEST, "unload");
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  });
  const beside = await measure(ours, request, 1, parts.options);
  const count = await swaps.stop();
  const ratio = beside.p99Us / atRest.p99Us;
  print(
    formatCell(`ours  ${SMALL.model} beside ${count} loads 1`, beside, [["x p99 at rest", ratio]]),
  );
  const title = `${SMALL.title}: p99 while another model loads and unloads of that at rest`;
  print(formatGoal(title, ratio, `<= ${P99_LIMIT}`, ratio <= P99_LIMIT));
  await swapServed(ours, parts);
  await cycleGuest(ours, parts.cycles ?? CYCLES);
}

/** Requests without pause to a model that is loaded anew again and again. */
async function swapServed(ours: Target, { repository, cycles = CYCLES }: SwapParts): Promise<void> {
  const file = join(repository, SWAPPED, "1", "model.onnx");
  let answered = 0;
  let failed = 0;
  const requests = repeat(async () => {
    if (await infer(ours, SWAPPED)) answered++;
    else failed++;
  });
  for (let cycle = 0; cycle < cycles; cycle++) {
    await Deno.utime(file, cycle + 1, cycle + 1);
    await control(ours, SWAPPED, "load");
  }
  await requests.stop();
  const title = `failed requests of ${
    answered + failed
  } in ${cycles} swaps of the model they are for`;
  print(formatGoal(title, failed, "0", failed === 0 && answered > 0));
}

async function cycleGuest(ours: Target, cycles: number): Promise<void> {
  let before = 0;
  for (let cycle = 0; cycle < cycles + WARM_CYCLES; cycle++) {
    if (cycle === WARM_CYCLES) before = await ours.process.rssBytes();
    await control(ours, GUEST, "load");
    await infer(ours, GUEST);
    await control(ours, GUEST, "unload");
  }
  const growth = await ours.process.rssBytes() / before - 1;
  const title = `growth of the memory in ${cycles} loads and unloads`;
  print(formatGoal(title, growth, `<= ${RSS_LIMIT}`, growth <= RSS_LIMIT));
}

/** Does something over and over until it is stopped; `stop` tells how often. */
function repeat(operation: () => Promise<void>): { stop(): Promise<number> } {
  let isStopped = false;
  let count = 0;
  const running = (async () => {
    while (!isStopped) {
      await operation();
      count++;
    }
  })();
  return {
    stop: async () => {
      isStopped = true;
      await running;
      return count;
    },
  };
}

async function copyModel(repository: string, name: string): Promise<void> {
  for (const file of ["config.pbtxt", "1/model.onnx"]) {
    const path = join(repository, name, file);
    await Deno.mkdir(dirname(path), { recursive: true });
    await Deno.copyFile(join(repository, SMALL.model, file), path);
  }
}

async function control(
  { httpPort }: Target,
  model: string,
  what: "load" | "unload",
): Promise<void> {
  const address = `http://127.0.0.1:${httpPort}/v2/repository/models/${model}/${what}`;
  const response = await fetch(address, { method: "POST" });
  const text = await response.text();
  if (!response.ok) throw new Error(`Cannot ${what} '${model}': ${text}`);
}

async function infer({ httpPort }: Target, model: string): Promise<boolean> {
  const [size] = SMALL.shape;
  const input = {
    name: SMALL.inputName,
    datatype: "FP32",
    shape: SMALL.shape,
    data: new Array(size).fill(1),
  };
  const response = await fetch(`http://127.0.0.1:${httpPort}/v2/models/${model}/infer`, {
    method: "POST",
    body: JSON.stringify({ inputs: [input] }),
  });
  await response.body?.cancel();
  return response.ok;
}
