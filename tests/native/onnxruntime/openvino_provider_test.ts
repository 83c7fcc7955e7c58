import { deepEqual, ok } from "node:assert/strict";
import { frameworkLibrary } from "../../backends/framework_library.ts";
import type { CaseResult } from "../webgpu/run_node_cases.ts";

const FOLDER = "/usr/share/libonnx-testdata/data";
const LIST = new URL("../webgpu/node_cases.txt", import.meta.url).pathname;
const PROGRAM = new URL("../webgpu/run_node_cases.ts", import.meta.url).pathname;
const LIMIT_MS = 100_000;
/** All of the list take a minute. */
const EVERY = 5;
const PASSED_MIN = 20;
/** OpenVINO has not all of the operators, and not for all types. */
const LACKED = /cannot run on OpenVINO alone/;

/** The provider itself answers otherwise. */
const OTHERWISE = /_one_input$|^node\/test_reduce_l1_/;

const library = frameworkLibrary("onnxruntime_openvino");

function whyNot(): string | undefined {
  if ("reason" in library) return library.reason;
  try {
    return Deno.statSync(`${FOLDER}/node`).isDirectory ? undefined : `${FOLDER} is no folder`;
  } catch {
    return "libonnx-testdata is not installed";
  }
}

const reason = whyNot();

Deno.test({
  // In a process of its own: another ONNX Runtime and another OpenVINO are opened.
  name: `the OpenVINO provider runs ONNX node tests alone, with the CPU's answers${
    reason === undefined ? "" : ` (skipped: ${reason})`
  }`,
  ignore: reason !== undefined,
  fn: async () => {
    const names = (await Deno.readTextFile(LIST)).trim().split("\n");
    const list = await Deno.makeTempFile({ prefix: "nereid_" });
    try {
      const some = names.filter((name, index) => index % EVERY === 0 && !OTHERWISE.test(name));
      await Deno.writeTextFile(list, some.join("\n"));
      const { stdout } = await new Deno.Command(Deno.execPath(), {
        args: ["run", "-A", "--no-check", PROGRAM, FOLDER, list, "openvino"],
        stdin: "null",
        stderr: "null",
        env: { NEREID_ONNXRUNTIME_LIBRARY: "path" in library ? library.path : "" },
        signal: AbortSignal.timeout(LIMIT_MS),
      }).output();
      const lines = new TextDecoder().decode(stdout).trim().split("\n");
      const results = lines.filter((line) => line.endsWith("}")).map((line) =>
        JSON.parse(line) as CaseResult
      );
      const faults = results.filter(({ fault }) => fault !== undefined && !LACKED.test(fault));
      deepEqual(faults, []);
      const passed = results.filter(({ fault }) => fault === undefined).length;
      ok(passed >= PASSED_MIN, `${passed} of ${some.length} passed, ${results.length} ran`);
    } finally {
      await Deno.remove(list);
    }
  },
});
