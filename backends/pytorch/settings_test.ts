import assert from "node:assert/strict";
import { create } from "@bufbuild/protobuf";
import { ModelConfigSchema } from "../../proto/gen/model_config_pb.ts";
import { readTorchSettings, TorchThreads } from "./settings.ts";

const read = (values: Record<string, string>) =>
  readTorchSettings({
    name: "m",
    config: create(ModelConfigSchema, {
      parameters: Object.fromEntries(
        Object.entries(values).map(([key, stringValue]) => [key, { stringValue }]),
      ),
    }),
  });

Deno.test("readTorchSettings() has the defaults of the reference's backend", () => {
  const { switches, weightSharing, threads, words } = read({});
  assert.deepEqual(switches, {
    ...{ optimizedExecution: true, cacheCleaning: false, inferenceMode: true, cudnn: true },
    ...{ tensorFuser: undefined, jitProfiling: undefined, jitExecutor: undefined },
  });
  assert.deepEqual([weightSharing, threads, words], [false, { intra: 0, inter: 0 }, []]);
});

Deno.test("readTorchSettings() takes every parameter, and says so as the reference does", () => {
  const { switches, weightSharing, threads, words } = read({
    ...{ DISABLE_OPTIMIZED_EXECUTION: "true", INFERENCE_MODE: "0", DISABLE_CUDNN: "TRUE" },
    ...{ ENABLE_TENSOR_FUSER: "1", ENABLE_JIT_EXECUTOR: "false", ENABLE_JIT_PROFILING: "true" },
    ...{ ENABLE_WEIGHT_SHARING: "true", ENABLE_CACHE_CLEANING: "1", ENABLE_NVFUSER: "true" },
    ...{ INTRA_OP_THREAD_COUNT: "2", INTER_OP_THREAD_COUNT: "-1" },
  });
  assert.deepEqual(switches, {
    ...{ optimizedExecution: false, cacheCleaning: true, inferenceMode: false, cudnn: false },
    ...{ tensorFuser: true, jitProfiling: true, jitExecutor: false },
  });
  assert.deepEqual([weightSharing, threads], [true, { intra: 2, inter: 0 }]);
  for (
    const line of [
      "Optimized execution is disabled for model instance 'm'",
      "Inference Mode is disabled for model instance 'm'",
      "cuDNN is disabled for model instance 'm'",
      "Jit executor is disabled for model instance 'm'",
      "Weight sharing is enabled for model instance 'm'",
    ]
  ) assert.ok(words.includes(line), line);
  assert.match(words.join("\n"), /'ENABLE_NVFUSER' of model 'm' has no effect/);
});

Deno.test("readTorchSettings() refuses values that are none, with the place", () => {
  assert.throws(
    () => read({ ENABLE_NVFUSER: "perhaps" }),
    /failed to convert 'perhaps' to boolean for parameter 'ENABLE_NVFUSER' of model 'm'/,
  );
  assert.throws(() => read({ INTER_OP_THREAD_COUNT: "x" }), /'INTER_OP_THREAD_COUNT' of model 'm'/);
});

Deno.test("TorchThreads lets the first model decide, and tells the others", () => {
  const lines: string[] = [];
  const set: object[] = [];
  const threads = new TorchThreads({
    info: (line) => lines.push(line),
    warning: (line) => lines.push(`warning: ${line}`),
  });
  const apply = (model: string, intra: number) =>
    threads.apply(model, { intra, inter: 0 }, (each) => set.push(each));
  apply("a", 2);
  apply("b", 3);
  apply("c", 2);
  apply("d", 0);
  assert.deepEqual(set, [{ intra: 2, inter: 0 }]);
  assert.deepEqual(lines, [
    "Intra op thread count is set to 2 for model instance 'a'",
    "warning: INTRA_OP_THREAD_COUNT 3 of model 'b' is ignored: model 'a' set it to 2 for the whole process",
  ]);
});

Deno.test("TorchThreads warns when the process does not take a count any more", () => {
  const lines: string[] = [];
  const log = { info() {}, warning: (line: string) => lines.push(line) };
  new TorchThreads(log).apply("a", { intra: 0, inter: 2 }, () => {
    throw new Error("called too late");
  });
  assert.deepEqual(lines, ["INTER_OP_THREAD_COUNT of model 'a' has no effect: called too late"]);
});
