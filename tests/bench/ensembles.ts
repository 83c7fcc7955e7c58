import { join } from "node:path";
import { type Cell, measure, type MeasureOptions, type Target } from "./measure.ts";
import { type Payload, writeRequest } from "./payload.ts";
import { formatCell, formatGoal, print } from "./report.ts";

const STEP_COUNT = 10;
/** Milliseconds that all steps together may add to a request of 10 MB. */
const ADDED_MS_MAX = 1;

const SIZES: readonly { readonly title: string; readonly count: number }[] = [
  { title: "FP32[16]", count: 16 },
  { title: "10 MB", count: 2_500_000 },
];

function modelName(count: number): string {
  return `step_${count}`;
}

function ensembleName(count: number): string {
  return `ensemble_${count}`;
}

/** Adds, for each size, a model that answers with its input, and an ensemble of ten times this model. */
export async function writeEnsembles(repository: string): Promise<void> {
  for (const { count } of SIZES) {
    const tensor = (kind: string, name: string) =>
      `${kind} [ { name: "${name}" data_type: TYPE_FP32 dims: [ ${count} ] } ]\n`;
    const tensors = tensor("input", "IN") + tensor("output", "OUT");
    await writeModel(repository, modelName(count), `backend: "identity"\n${tensors}`);
    const steps = Array.from({ length: STEP_COUNT }, (_, index) => {
      const [from, to] = [index === 0 ? "IN" : `t${index}`, `t${index + 1}`];
      return `step { model_name: "${modelName(count)}" model_version: -1 ` +
        `input_map { key: "IN" value: "${from}" } ` +
        `output_map { key: "OUT" value: "${index === STEP_COUNT - 1 ? "OUT" : to}" } }\n`;
    });
    const ensemble = `platform: "ensemble"\n${tensors}ensemble_scheduling {\n${steps.join("")}}\n`;
    await writeModel(repository, ensembleName(count), ensemble);
  }
}

async function writeModel(repository: string, name: string, config: string): Promise<void> {
  await Deno.mkdir(join(repository, name, "1"), { recursive: true });
  await Deno.writeTextFile(join(repository, name, "config.pbtxt"), config);
}

/** One request at a time: what ten steps cost more than one, on the way of a client and inside of the core. */
export async function compareEnsembles(
  ours: Target,
  directory: string,
  options: MeasureOptions,
): Promise<void> {
  for (const { title, count } of SIZES) {
    const one = await measureModel(ours, modelName(count), { count, directory, options });
    const ten = await measureModel(ours, ensembleName(count), { count, directory, options });
    print(formatCell(`${title}, one identity model`, one.cell, []));
    const added = ten.coreUs - one.coreUs;
    print(
      formatCell(`${title}, ensemble of ${STEP_COUNT} identities`, ten.cell, [
        ["us per step in the core", added / (STEP_COUNT - 1)],
        ["us CPU per step", (ten.cell.cpuUs - one.cell.cpuUs) / (STEP_COUNT - 1)],
      ]),
    );
    const goal = `${title}: ms that ${STEP_COUNT} steps add to a request, in the core`;
    const addedMs = ten.coreUs / 1000;
    print(formatGoal(goal, addedMs, `<= ${ADDED_MS_MAX}`, addedMs <= ADDED_MS_MAX));
  }
}

interface Measured {
  readonly cell: Cell;
  /** Duration of a request by the server's statistics: without the transport. */
  readonly coreUs: number;
}

async function measureModel(
  ours: Target,
  model: string,
  how: { count: number; directory: string; options: MeasureOptions },
): Promise<Measured> {
  const payload: Payload = {
    title: model,
    model,
    inputName: "IN",
    outputName: "OUT",
    shape: [how.count],
  };
  const request = await writeRequest(payload, "http-binary", how.directory);
  // The first measurement warms up; the statistics are those of the second.
  await measure(ours, request, 1, { ...how.options, tries: 1 });
  const before = await readDuration(ours, model);
  const cell = await measure(ours, request, 1, { ...how.options, tries: 1 });
  const after = await readDuration(ours, model);
  return { cell, coreUs: (after.ns - before.ns) / (after.count - before.count) / 1000 };
}

async function readDuration(ours: Target, model: string): Promise<{ count: number; ns: number }> {
  const answer = await fetch(`http://127.0.0.1:${ours.httpPort}/v2/models/${model}/stats`);
  const { model_stats: [statistics] } = await answer.json();
  return statistics.inference_stats.success;
}
