import { join } from "node:path";
import { createServer, type Server } from "../../mod.ts";
import { formatGoal, print } from "./report.ts";

const STEP_COUNT = 10;
/** Milliseconds that all steps together may add to a request of 10 MB. */
const ADDED_MS_MAX = 1;
const ROUNDS = 40;
const REQUESTS_PER_ROUND = 50;

const SIZES: readonly { readonly title: string; readonly count: number }[] = [
  { title: "FP32[16]", count: 16 },
  { title: "10 MB tensor", count: 2_500_000 },
];

/**
 * Measures what the steps of an ensemble cost, without any transport: an ensemble of ten identities next to one
 * identity, one request at a time, in turn. The quietest of many rounds counts: others use the processor, too.
 */
export async function compareEnsembles(directory: string): Promise<void> {
  const repository = join(directory, "ensembles");
  await writeEnsembles(repository);
  await using server = createServer({ modelRepository: repository });
  await server.start();
  for (const { title, count } of SIZES) {
    const data = new Float32Array(count).fill(1);
    let [oneUs, tenUs] = [Infinity, Infinity];
    for (let round = 0; round < ROUNDS; round++) {
      oneUs = Math.min(oneUs, await measureRound(server, `step_${count}`, data));
      tenUs = Math.min(tenUs, await measureRound(server, `ensemble_${count}`, data));
    }
    const perStep = (tenUs - oneUs) / (STEP_COUNT - 1);
    print(
      `${title}: one model ${oneUs.toFixed(1)} us, ensemble of ${STEP_COUNT} ${
        tenUs.toFixed(1)
      } us, ${perStep.toFixed(1)} us per step`,
    );
    const addedMs = (tenUs - oneUs) / 1000;
    const goal = `${title}: ms that an ensemble of ${STEP_COUNT} adds to one model`;
    print(formatGoal(goal, addedMs, `<= ${ADDED_MS_MAX}`, addedMs <= ADDED_MS_MAX));
  }
}

/** Microseconds per request. */
async function measureRound(
  server: Server,
  modelName: string,
  data: Float32Array<ArrayBuffer>,
): Promise<number> {
  const inputs = [{ name: "IN", datatype: "FP32", shape: [data.length], data }] as const;
  const begin = performance.now();
  for (let turn = 0; turn < REQUESTS_PER_ROUND; turn++) {
    const { outputs } = await server.infer({ modelName, inputs });
    if (outputs[0]!.data.byteLength !== data.byteLength) throw new Error("A wrong answer");
  }
  return (performance.now() - begin) * 1000 / REQUESTS_PER_ROUND;
}

/** Writes, for each size, a model that answers with its input, and an ensemble of ten times this model. */
async function writeEnsembles(repository: string): Promise<void> {
  for (const { count } of SIZES) {
    const tensor = (kind: string, name: string) =>
      `${kind} [ { name: "${name}" data_type: TYPE_FP32 dims: [ ${count} ] } ]\n`;
    const tensors = tensor("input", "IN") + tensor("output", "OUT");
    await writeModel(repository, `step_${count}`, `backend: "identity"\n${tensors}`);
    const steps = Array.from({ length: STEP_COUNT }, (_, index) => {
      const from = index === 0 ? "IN" : `t${index}`;
      const to = index === STEP_COUNT - 1 ? "OUT" : `t${index + 1}`;
      return `step { model_name: "step_${count}" model_version: -1 ` +
        `input_map { key: "IN" value: "${from}" } output_map { key: "OUT" value: "${to}" } }\n`;
    });
    const ensemble = `platform: "ensemble"\n${tensors}ensemble_scheduling {\n${steps.join("")}}\n`;
    await writeModel(repository, `ensemble_${count}`, ensemble);
  }
}

async function writeModel(repository: string, name: string, config: string): Promise<void> {
  await Deno.mkdir(join(repository, name, "1"), { recursive: true });
  await Deno.writeTextFile(join(repository, name, "config.pbtxt"), config);
}
