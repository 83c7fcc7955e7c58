/**
 * Runs the suites for devices on a real NVIDIA GPU, and writes down versions, outcomes and ratios (docs/gpu_check.md):
 *
 *   deno run -A scripts/gpu_check.ts [--libraries=DIR] [--pip] [--only=STEP,…] [--skip=STEP,…]
 *                                    [--minutes=10] [--output=gpu_check.json] [--stand-ins]
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { printText } from "../server/cli/print.ts";
import { CHECKS, type Inventory, readDevices } from "./gpu_check/checks.ts";
import { findGpuLibraries, libraryEnvironment } from "./gpu_check/libraries.ts";
import { type CheckContext, runCommand, runStep, type StepResult } from "./gpu_check/step.ts";

/** The newest that fit each other, as the registry says; TensorRT's come from NVIDIA's own index through it. */
const PACKAGES = ["onnxruntime-gpu[cuda,cudnn]", "tensorrt", "onnx"];
const VENV = new URL("../.venv/bin/python", import.meta.url).pathname;
const PACKAGE_FOLDER = new URL("../.cache/gpu_check", import.meta.url).pathname;
const INVENTORY_LIMIT_MS = 60_000;
const PIP_LIMIT_MS = 240_000;

interface Settings {
  readonly libraries: string;
  readonly pip: boolean;
  readonly only: readonly string[];
  readonly skip: readonly string[];
  readonly minutes: number;
  readonly output: string;
  readonly standIns: boolean;
}

function print(line: string): void {
  printText(line + "\n");
}

/** @throws Error for an option or a step that there is not. */
function readSettings(args: readonly string[]): Settings {
  const { values } = parseArgs({
    args: [...args],
    options: {
      libraries: { type: "string", default: "" },
      pip: { type: "boolean", default: false },
      only: { type: "string", default: "" },
      skip: { type: "string", default: "" },
      minutes: { type: "string", default: "10" },
      output: { type: "string", default: "gpu_check.json" },
      "stand-ins": { type: "boolean", default: false },
    },
  });
  const names = CHECKS.map(({ name }) => name);
  const split = (text: string) => text.split(",").filter((part) => part !== "");
  const [only, skip] = [split(values.only), split(values.skip)];
  const unknown = [...only, ...skip].find((name) => !names.includes(name));
  if (unknown !== undefined) {
    throw new Error(`There is no step ${unknown}; there are ${names.join(", ")}`);
  }
  const minutes = Number(values.minutes);
  if (!(minutes > 0)) throw new Error(`--minutes=${values.minutes} is no number above 0`);
  const { libraries, pip, output } = values;
  return { libraries, pip, only, skip, minutes, output, standIns: values["stand-ins"] };
}

/** Variables for the libraries asked for. @throws Error when they cannot be had. */
async function prepareLibraries(
  { libraries, pip, standIns }: Settings,
  folder: string,
): Promise<Record<string, string>> {
  if (standIns) {
    const { prepareStandIns } = await import("../tests/devices/stand_in_folder.ts");
    return { ["LD_LIBRARY_PATH"]: await prepareStandIns(join(folder, "stand_ins")) };
  }
  const root = pip ? PACKAGE_FOLDER : libraries;
  if (pip) {
    print(`pip installs ${PACKAGES.join(", ")} into ${root}`);
    const command = ["python3", "-m", "pip", "install", "--upgrade", "--target", root, ...PACKAGES];
    const result = await runCommand(command, {}, AbortSignal.timeout(PIP_LIMIT_MS));
    if (result.code !== 0) throw new Error(`pip failed: ${result.stderr.trim().slice(-600)}`);
  }
  if (root === "") return {};
  const found = await findGpuLibraries(root);
  if (found.folders.length === 0) throw new Error(`There are no libraries below ${root}`);
  return libraryEnvironment(root, found);
}

/** Why nothing can be checked; undefined when there is a GPU. */
function whyNoGpu({ gpus, driver }: Inventory): string | undefined {
  if (gpus.some(({ usable }) => usable)) return undefined;
  return gpus[0]?.reason ?? driver["reason"] ?? "the driver lists none";
}

function versionsOf({ driver, gpus, libraries }: Inventory): Record<string, unknown> {
  return {
    deno: Deno.version.deno,
    driver,
    gpus,
    libraries: Object.fromEntries(
      libraries.map(({ name, version, path, reason }) => [
        name,
        path === undefined ? `missing: ${reason}` : `${version} ${path}`.trim(),
      ]),
    ),
  };
}

async function runChecks(settings: Settings, context: CheckContext, endMs: number) {
  const { only, skip } = settings;
  const results: StepResult[] = [];
  for (const step of CHECKS) {
    const isChosen = (only.length === 0 || only.includes(step.name)) && !skip.includes(step.name);
    if (!isChosen) continue;
    const result = await runStep(step, context, endMs - performance.now());
    results.push(result);
    const seconds = result.seconds.toFixed(1).padStart(6);
    print(`${result.state.padEnd(8)} ${step.name.padEnd(14)} ${seconds} s  ${result.detail}`);
  }
  return results;
}

/** Returns the exit code: 1 when a step failed, 2 for a wrong command line; no GPU is no failure. */
async function check(args: readonly string[]): Promise<number> {
  let settings: Settings;
  try {
    settings = readSettings(args);
  } catch (reason) {
    print((reason as Error).message);
    return 2;
  }
  const endMs = performance.now() + settings.minutes * 60_000;
  const folder = await Deno.makeTempDir({ prefix: "nereid-gpu-check-" });
  try {
    const env = await prepareLibraries(settings, folder);
    const signal = AbortSignal.timeout(INVENTORY_LIMIT_MS);
    const inventory = JSON.parse(await readDevices(env, signal)) as Inventory;
    const versions = versionsOf(inventory);
    const reason = whyNoGpu(inventory);
    if (reason !== undefined) {
      print(`no GPU: ${reason}`);
      await writeResults(settings, { ran: false, reason, versions, steps: [] });
      return 0;
    }
    print(JSON.stringify(versions, undefined, 2));
    const python = await Deno.stat(VENV).then(() => VENV, () => "python3");
    const context = { env, folder, python, isStandIn: settings.standIns };
    const steps = await runChecks(settings, context, endMs);
    const kind = settings.standIns ? "stand-ins" : "GPU";
    await writeResults(settings, { ran: true, kind, versions, steps });
    return steps.some(({ state }) => state === "failed") ? 1 : 0;
  } catch (reason) {
    print(`nothing could be checked: ${(reason as Error).message}`);
    return 1;
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

async function writeResults({ output }: Settings, results: object): Promise<void> {
  const date = new Date().toISOString();
  await Deno.writeTextFile(output, JSON.stringify({ date, ...results }, undefined, 2) + "\n");
  print(`written to ${output}`);
}

if (import.meta.main) Deno.exit(await check(Deno.args));
