import { join } from "node:path";
import { openInstance, outputsOf, tensor } from "../backends/fixture.ts";
import { print } from "./report.ts";

const MODEL = join(
  import.meta.dirname!,
  "../../examples/model_repository/ocr_cls/1/model.onnx",
);
const SHAPE = [1, 3, 48, 192];
/** Quietest of so many rounds: others use the processors, too. */
const ROUNDS = 8;
const RUNS_PER_ROUND = 10;
const WARMUP_RUNS = 5;

/** Measures one real model on the native runtime and on onnxruntime-web, a thread each, through the bare backends. */
export async function measureOnnxWeb(): Promise<void> {
  let model: Uint8Array;
  try {
    model = await Deno.readFile(MODEL);
  } catch {
    return print("onnxruntime_web: the model ocr_cls is not installed ('deno task demo' does it)");
  }
  const native = await runMs("onnxruntime", model);
  const web = await runMs("onnxruntime_web", model);
  print(`ocr_cls native CPU          ${native.toFixed(2)} ms per run`);
  print(`ocr_cls onnxruntime-web     ${web.toFixed(2)} ms per run`);
  print(`onnxruntime-web / native    ${(web / native).toFixed(1)} times the time`);
}

async function runMs(backend: string, model: Uint8Array): Promise<number> {
  await using opened = await openInstance(backend, {
    model,
    settings: { "intra_op_thread_count": "1" },
  });
  const { instance, request, source } = opened;
  const count = SHAPE.reduce((product, size) => product * size, 1);
  const values = Array.from({ length: count }, (_, index) => ((index * 37) % 255) / 127.5 - 1);
  const requests = [request([tensor(source.config.input[0]!.name, "FP32", SHAPE, values)])];
  const run = async (): Promise<void> => {
    const { outcomes } = await instance.execute(requests);
    outputsOf(outcomes[0]);
    (outcomes[0] as { release?: () => void }).release?.();
  };
  for (let index = 0; index < WARMUP_RUNS; index++) await run();
  let best = Infinity;
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now();
    for (let index = 0; index < RUNS_PER_ROUND; index++) await run();
    best = Math.min(best, (performance.now() - start) / RUNS_PER_ROUND);
  }
  return best;
}

if (import.meta.main) await measureOnnxWeb();
