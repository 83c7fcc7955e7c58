import { deepEqual, equal, match, ok } from "node:assert/strict";
import { prepareStandIns } from "../devices/stand_in_folder.ts";
import { missingCompiler } from "../devices/stand_in_libraries.ts";
import { whyNoStandIns } from "../native/tensorrt/stand_ins.ts";

const PROJECT = new URL("../../", import.meta.url).pathname;
const reasonToSkip = whyNoStandIns() ?? missingCompiler();
/** As the GPUs of the stand-in for NVML. */
const NVIDIA_SMI = `#!/bin/sh
echo "GPU-00000000-0000-0000-0000-000000000000, 8192, 300.00"
echo "GPU-00000000-0000-0000-0000-000000000001, 8192, MEMORY_LIMIT"
`;

interface Step {
  readonly name: string;
  readonly state: string;
  readonly detail: string;
}

/** What the script prints, gives and writes. */
async function check(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const output = await Deno.makeTempFile({ prefix: "nereid-gpu-check-", suffix: ".json" });
  try {
    const { code, stdout } = await new Deno.Command(Deno.execPath(), {
      args: [
        "run",
        "-A",
        "--no-check",
        `${PROJECT}scripts/gpu_check.ts`,
        `--output=${output}`,
        ...args,
      ],
      env: { NO_COLOR: "1", ...env },
      stdin: "null",
      stderr: "null",
      signal: AbortSignal.timeout(180_000),
    }).output();
    const results = JSON.parse(await Deno.readTextFile(output) || "{}");
    return { code, text: new TextDecoder().decode(stdout), results };
  } finally {
    await Deno.remove(output);
  }
}

async function withFolder(use: (folder: string) => Promise<void>): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "nereid-gpu-check-" });
  try {
    await use(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

Deno.test({
  name: "gpu_check ends cleanly where there is no GPU, and says why",
  ignore: reasonToSkip !== "",
  fn: () =>
    withFolder(async (folder) => {
      const libraries = await prepareStandIns(folder);
      const env = { LD_LIBRARY_PATH: libraries, NVML_STAND_IN_DEVICES: "0" };
      const { code, text, results } = await check([], env);
      equal(code, 0);
      match(text, /^no GPU: the CUDA driver finds no GPU/);
      deepEqual([results.ran, results.steps], [false, []]);
      match(results.versions.libraries["ONNX Runtime"], /^1\.\d+/);
    }),
});

Deno.test({
  name: "gpu_check runs its steps on stand-ins, and skips with the reason what they lack",
  ignore: reasonToSkip !== "",
  fn: () =>
    withFolder(async (folder) => {
      const program = `${folder}/nvidia-smi`;
      await Deno.writeTextFile(program, NVIDIA_SMI.replace("MEMORY_LIMIT", "[N/A]"));
      await Deno.chmod(program, 0o755);
      const env = { PATH: `${folder}:${Deno.env.get("PATH")}` };
      const args = ["--stand-ins", "--only=metrics,nodes,plan,bench"];
      const { code, text, results } = await check(args, env);
      const steps: readonly Step[] = results.steps;
      const states = Object.fromEntries(steps.map(({ name, state }) => [name, state]));
      const expected = { metrics: "passed", nodes: "skipped", plan: "passed", bench: "skipped" };
      deepEqual(states, expected, text);
      equal(code, 0);
      deepEqual([results.ran, results.kind, results.versions.gpus.length], [true, "stand-ins", 2]);
      match(steps.find(({ name }) => name === "nodes")!.detail, /has no provider for CUDA/);
    }),
});

Deno.test({
  name:
    "gpu_check fails where the metrics are not those of nvidia-smi, and skips when time is over",
  ignore: reasonToSkip !== "",
  fn: () =>
    withFolder(async (folder) => {
      const program = `${folder}/nvidia-smi`;
      await Deno.writeTextFile(program, NVIDIA_SMI.replace("MEMORY_LIMIT", "700.00"));
      await Deno.chmod(program, 0o755);
      const env = { PATH: `${folder}:${Deno.env.get("PATH")}` };
      const wrong = await check(["--stand-ins", "--only=metrics"], env);
      equal(wrong.code, 1, wrong.text);
      match(wrong.results.steps[0].detail, /power limit is 300, nvidia-smi says 700/);
      const late = await check(["--stand-ins", "--minutes=0.001"], env);
      equal(late.code, 0, late.text);
      ok(late.results.steps.every(({ detail }: Step) => detail === "the time is over"), late.text);
    }),
});

Deno.test("gpu_check names what it does not know", async () => {
  const step = await check(["--only=nothing"]);
  equal(step.code, 2);
  match(step.text, /^There is no step nothing; there are devices, metrics/);
  const option = await check(["--librares=x"]);
  equal(option.code, 2);
  match(option.text, /--librares/);
});
