import { deepEqual, ok } from "node:assert/strict";
import type { CaseResult } from "./run_node_cases.ts";
import { softwareVulkan } from "./software_vulkan.ts";

const FOLDER = "/usr/share/libonnx-testdata/data";
const LIST = new URL("node_cases.txt", import.meta.url).pathname;
const PROGRAM = new URL("run_node_cases.ts", import.meta.url).pathname;
const LIMIT_MS = 170_000;
/** As issue 7 wants them. */
const WANTED_COUNT = 200;

function whyNot(): string | undefined {
  try {
    return Deno.statSync(`${FOLDER}/node`).isDirectory ? undefined : `${FOLDER} is no folder`;
  } catch {
    return "libonnx-testdata is not installed";
  }
}

Deno.test("the WebGPU provider runs ONNX node tests alone, with the CPU's answers", async () => {
  const environment = await softwareVulkan();
  const reason = typeof environment === "string" ? environment : whyNot();
  if (typeof environment === "string" || reason !== undefined) {
    console.log(`skipped: ${reason}`);
    return;
  }
  const names = (await Deno.readTextFile(LIST)).trim().split("\n");
  const command = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", PROGRAM, FOLDER, LIST],
    stdin: "null",
    stderr: "null",
    env: environment,
    signal: AbortSignal.timeout(LIMIT_MS),
  });
  const { stdout } = await command.output();
  const lines = new TextDecoder().decode(stdout).trim().split("\n");
  // A line that is cut off belongs to a run that was ended.
  const results = lines.filter((line) => line.endsWith("}")).map((line) =>
    JSON.parse(line) as CaseResult
  );
  deepEqual(results.filter(({ fault }) => fault !== undefined), []);
  // A busy machine may not get through all of them in time.
  ok(results.length >= WANTED_COUNT, `${results.length} of ${names.length} ran`);
  console.log(`${results.length} of ${names.length} node tests on WebGPU`);
});
