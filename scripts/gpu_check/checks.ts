import { join } from "node:path";
import type { DeviceJob, DeviceResult } from "../../tests/bench/device_job.ts";
import type { MeasuredRow } from "../../tests/bench/devices.ts";
import { compareGpuMetrics } from "./gpu_metrics.ts";
import {
  type CheckContext,
  type CheckStep,
  denoCommand,
  lastJson,
  runCommand,
  type StepOutcome,
  testOutcome,
} from "./step.ts";

const MODEL = new URL("../../.cache/bench_models/ocr_cls/1/model.onnx", import.meta.url).pathname;
const BUILDER = new URL("build_plan.py", import.meta.url).pathname;
const SHAPE = [1, 3, 48, 192];
/** Tests for machines with a GPU run only when they are asked for. */
const GPU_TESTS = { ["NEREID_GPU_TESTS"]: "1" } as const;
/** ONNX's own tests, as Debian and PyPI pack them. */
const NODE_FOLDERS = ["/usr/share/libonnx-testdata/data"];

/** Every check, in the order in which they run. */
export const CHECKS: readonly CheckStep[] = [
  {
    name: "devices",
    what: "the list of devices, GPU metrics, memory pools",
    limitSeconds: 120,
    run: (context, signal) => runTests(["tests/devices"], context, signal),
  },
  {
    name: "metrics",
    what: "/metrics beside nvidia-smi",
    limitSeconds: 60,
    run: compareGpuMetrics,
  },
  {
    name: "shared-memory",
    what: "CUDA shared memory with tritonclient",
    limitSeconds: 90,
    run: runSharedMemoryTests,
  },
  {
    name: "nodes",
    what: "ONNX node tests on the CUDA provider, with the CPU's answers",
    limitSeconds: 150,
    run: runNodeTests,
  },
  {
    name: "engine-cache",
    what: "ONNX Runtime's TensorRT provider, whose engine is kept",
    limitSeconds: 150,
    run: runEngineCache,
  },
  {
    name: "plan",
    what: "a TensorRT plan, built on the spot",
    limitSeconds: 120,
    run: runPlan,
  },
  {
    name: "bench",
    what: "one real model on every device",
    limitSeconds: 150,
    run: runBench,
  },
];

async function runTests(
  paths: readonly string[],
  context: CheckContext,
  signal: AbortSignal,
): Promise<StepOutcome> {
  const command = denoCommand("test", "-A", "--no-check", ...paths);
  return testOutcome(await runCommand(command, { ...context.env, ...GPU_TESTS }, signal));
}

async function runSharedMemoryTests(
  { env, python, isStandIn }: CheckContext,
  signal: AbortSignal,
): Promise<StepOutcome> {
  const probe = await runCommand([python, "-c", "import pytest, tritonclient"], env, signal);
  if (probe.code !== 0) {
    const detail = `${python} has no pytest and tritonclient (tests/requirements.txt)`;
    return { state: "skipped", detail };
  }
  const kind = isStandIn ? "stand-in" : "GPU";
  const file = "tests/integration/test_cuda_shared_memory.py";
  const command = [python, "-B", "-m", "pytest", "-q", "-c", "tests/pytest.ini", file, "-k", kind];
  return testOutcome(await runCommand(command, env, signal));
}

async function runNodeTests(
  { env, python }: CheckContext,
  signal: AbortSignal,
): Promise<StepOutcome> {
  const refusal = await missingProvider(env, signal);
  if (refusal !== undefined) return { state: "skipped", detail: refusal };
  const code = "import onnx, os; print(os.path.dirname(onnx.__file__))";
  const found = await runCommand([python, "-c", code], env, signal);
  const folders = found.code === 0
    ? [...NODE_FOLDERS, join(found.stdout.trim(), "backend/test/data")]
    : NODE_FOLDERS;
  const folder = folders.find((each) => isThere(join(each, "node")));
  if (folder === undefined) {
    const detail = `no node tests in ${folders.join(", ")}: the package libonnx-testdata of ` +
      "Debian or onnx of PyPI has them";
    return { state: "skipped", detail };
  }
  const { stdout } = await runCommand(
    denoCommand("run", "-A", "--no-check", "tests/native/webgpu/run_node_cases.ts")
      .concat(folder, "tests/native/webgpu/node_cases.txt", "cuda"),
    env,
    signal,
  );
  const results = stdout.split("\n").filter((line) => line.endsWith("}"))
    .map((line) => JSON.parse(line) as { readonly name: string; readonly fault?: string });
  // What CUDA lacks is no fault of ours: fallback to the CPU is not allowed here.
  const lacked = results.filter(({ fault }) => fault?.includes("alone, which lacks"));
  const faults = results.filter((each) => each.fault !== undefined && !lacked.includes(each));
  const passed = results.length - faults.length - lacked.length;
  const detail = `${passed} passed, ${faults.length} failed, ${lacked.length} not on CUDA`;
  const values = { passed, lacked: lacked.length, faults };
  return { state: faults.length === 0 && passed > 0 ? "passed" : "failed", detail, values };
}

const NO_MODEL: StepOutcome = {
  state: "skipped",
  detail: `there is no ${MODEL}: 'deno run -A tests/bench/devices.ts' fetches it`,
};

async function runEngineCache(context: CheckContext, signal: AbortSignal): Promise<StepOutcome> {
  if (!isThere(MODEL)) return NO_MODEL;
  const job: DeviceJob = {
    backend: "onnxruntime",
    modelFile: MODEL,
    shape: SHAPE,
    device: "cuda",
    accelerator: "tensorrt",
    settings: { "engine-cache-directory": join(context.folder, "engines") },
  };
  const results: DeviceResult[] = [];
  for (let load = 0; load < 2; load++) {
    const result = await measure(job, context, signal);
    if ("skipped" in result) return notRun(result);
    results.push(result);
  }
  const [built, kept] = results.map((result) => "skipped" in result ? 0 : result.firstMs / 1000);
  const detail = `first run after ${built!.toFixed(1)} s, with the engine kept after ` +
    `${kept!.toFixed(1)} s`;
  return { state: kept! < built! ? "passed" : "failed", detail, values: { built, kept } };
}

async function runPlan(context: CheckContext, signal: AbortSignal): Promise<StepOutcome> {
  const plan = join(context.folder, "model.plan");
  const job: DeviceJob = { backend: "tensorrt", modelFile: plan, shape: SHAPE, device: "cuda" };
  if (context.isStandIn) {
    const { identityPlan } = await import("../../tests/native/tensorrt/plan.ts");
    await Deno.writeFile(plan, identityPlan(10));
    const result = await measure({ ...job, shape: [1, 4] }, context, signal);
    return "skipped" in result ? notRun(result) : {
      state: result.answer.length === 4 ? "passed" : "failed",
      detail: `a plan of the stand-in, ${result.msPerRun.toFixed(3)} ms per run`,
    };
  }
  if (!isThere(MODEL)) return NO_MODEL;
  const command = [context.python, BUILDER, MODEL, plan, SHAPE.join(",")];
  const built = await runCommand(command, context.env, signal);
  if (built.code !== 0) {
    const reason = built.stderr.trim().split("\n").at(-1) ?? "";
    const isMissing = reason.includes("No module named");
    return { state: isMissing ? "skipped" : "failed", detail: reason };
  }
  const [gpu, cpu] = [
    await measure(job, context, signal),
    await measure(
      { ...job, backend: "onnxruntime", modelFile: MODEL, device: "cpu" },
      context,
      signal,
    ),
  ];
  if ("skipped" in gpu) return notRun(gpu);
  if ("skipped" in cpu) return notRun(cpu);
  const worst = Math.max(...gpu.answer.map((value, k) => Math.abs(value - cpu.answer[k]!)));
  const detail = `TensorRT ${built.stdout.trim().split("\n").at(-1)}: ` +
    `${gpu.msPerRun.toFixed(3)} ms per run, CPU ${cpu.msPerRun.toFixed(2)} ms, answers differ by ` +
    worst.toExponential(1);
  const values = { tensorrt: built.stdout.trim(), gpuMs: gpu.msPerRun, cpuMs: cpu.msPerRun };
  return { state: worst < 0.02 ? "passed" : "failed", detail, values };
}

async function runBench(
  { env, isStandIn }: CheckContext,
  signal: AbortSignal,
): Promise<StepOutcome> {
  if (isStandIn) return { state: "skipped", detail: "a stand-in has no speed" };
  const script = "tests/bench/devices.ts";
  const command = denoCommand("run", "-A", "--no-check", script, "--json");
  const { rows } = lastJson<{ rows: readonly MeasuredRow[] }>(
    await runCommand(command, env, signal),
  );
  const ran = rows.filter(({ result }) => !("skipped" in result));
  const texts = ran.map(({ title, ratio }) => `${title} ${(ratio ?? 0).toFixed(2)}`);
  return {
    state: ran.length > 1 ? "passed" : "failed",
    detail: `time per run, native CPU = 1: ${texts.join(", ")}`,
    values: { rows },
  };
}

/** Why no model can run on CUDA by ONNX Runtime; undefined when one can. */
async function missingProvider(
  env: CheckContext["env"],
  signal: AbortSignal,
): Promise<string | undefined> {
  const { backends } = JSON.parse(await readDevices(env, signal)) as Inventory;
  const kinds = backends.find(({ name }) => name === "onnxruntime")?.kinds ?? [];
  const cuda = kinds.find(({ device }) => device === "cuda");
  return cuda?.usable ? undefined : cuda?.reason ?? "ONNX Runtime cannot be opened";
}

/** The parts of `devices --json` that are looked at. */
export interface Inventory {
  readonly driver: Readonly<Record<string, string>>;
  readonly gpus: readonly {
    readonly name: string;
    readonly usable: boolean;
    readonly reason?: string;
  }[];
  readonly libraries: readonly {
    readonly name: string;
    readonly version: string;
    readonly path?: string;
    readonly reason?: string;
  }[];
  readonly backends: readonly {
    readonly name: string;
    readonly kinds: readonly {
      readonly device: string;
      readonly usable: boolean;
      readonly reason?: string;
    }[];
  }[];
}

/** What `devices --json` prints. */
export async function readDevices(env: CheckContext["env"], signal: AbortSignal): Promise<string> {
  const command = denoCommand("run", "-A", "--no-check", "mod.ts", "devices", "--json");
  const { code, stdout, stderr } = await runCommand(command, env, signal);
  if (code !== 0) throw new Error(`the list of devices cannot be had: ${stderr.trim()}`);
  return stdout;
}

async function measure(
  job: DeviceJob,
  { env }: CheckContext,
  signal: AbortSignal,
): Promise<DeviceResult> {
  const script = "tests/bench/device_job.ts";
  const command = denoCommand("run", "-A", "--no-check", script, JSON.stringify(job));
  return lastJson<DeviceResult>(await runCommand(command, env, signal));
}

/** A device that refuses is skipped; what fails on it has failed. */
function notRun(
  { skipped, isFault }: Extract<DeviceResult, { readonly skipped: string }>,
): StepOutcome {
  return { state: isFault ? "failed" : "skipped", detail: skipped };
}

function isThere(path: string): boolean {
  try {
    Deno.statSync(path);
    return true;
  } catch {
    return false;
  }
}
