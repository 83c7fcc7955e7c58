import assert from "node:assert/strict";
import { encodeBytesTensor } from "../../../proto/bytes_tensor.ts";
import { type ModelConfig, ModelConfigSchema } from "../../../proto/gen/model_config_pb.ts";
import { parseModelConfig } from "../../../proto/model_config.ts";
import { ServerError } from "../../../proto/status.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import { createStateRules, SlotState } from "./sequence_state.ts";

function configOf(states: string, more = ""): ModelConfig {
  const { config } = parseModelConfig(
    `name: "m" ${more} sequence_batching { ${states} }`,
    "m/config.pbtxt",
  );
  assert.equal(config.$typeName, ModelConfigSchema.typeName);
  return config;
}

function state(input: string, output: string, more: string): string {
  return `state { input_name: "${input}" output_name: "${output}" ${more} }`;
}

function floats(name: string, shape: readonly number[], values: readonly number[]): Tensor {
  return { name, datatype: "FP32", shape, data: new Uint8Array(Float32Array.from(values).buffer) };
}

function valuesOf({ data }: Tensor): number[] {
  return [...new Float32Array(data.slice().buffer)];
}

async function slotOf(config: ModelConfig): Promise<SlotState> {
  return new SlotState((await createStateRules(config, "/none"))!);
}

const TWO = configOf(
  state("sA", "zA", "data_type: TYPE_FP32 dims: 1") +
    state("sB", "yB", "data_type: TYPE_FP32 dims: 1"),
);

Deno.test("createStateRules() knows models without states", async () => {
  assert.equal(await createStateRules(configOf(""), "/none"), undefined);
  const { config } = parseModelConfig(`name: "m" dynamic_batching { }`, "m/config.pbtxt");
  assert.equal(await createStateRules(config, "/none"), undefined);
});

Deno.test("createStateRules() makes first values: zeros, 1 for a free dimension, empty strings", async () => {
  const config = configOf(
    state("a", "b", "data_type: TYPE_INT64 dims: [ 2, -1 ]") +
      state("c", "d", "data_type: TYPE_STRING dims: [ 2 ]") +
      state(
        "e",
        "f",
        `data_type: TYPE_FP32 dims: [ -1 ]
         initial_state { name: "i" data_type: TYPE_FP32 dims: 0 zero_data: true }`,
      ),
    "max_batch_size: 4",
  );
  const rules = (await createStateRules(config, "/none"))!;
  assert.deepEqual(rules.states.map(({ initial }) => initial), [
    { name: "a", datatype: "INT64", shape: [1, 2, 1], data: new Uint8Array(16) },
    { name: "c", datatype: "BYTES", shape: [1, 2], data: new Uint8Array(8) },
    { name: "e", datatype: "FP32", shape: [1, 0], data: new Uint8Array(0) },
  ]);
  assert.deepEqual(rules.states[0]?.dims, [1, 2, -1]);
});

Deno.test("createStateRules() reads first values from files", async () => {
  const directory = await Deno.makeTempDir();
  try {
    await Deno.mkdir(`${directory}/initial_state/deep`, { recursive: true });
    const write = (name: string, bytes: Uint8Array) =>
      Deno.writeFile(`${directory}/initial_state/${name}`, bytes);
    await write("deep/long", new Uint8Array(Float32Array.of(1, 2, 3).buffer));
    await write("strings", encodeBytesTensor(["one", "", "more"]));
    await write("cut", encodeBytesTensor(["one", "two"]).subarray(0, 12));
    await Deno.symlink("/etc/hostname", `${directory}/initial_state/link`);
    const fromFile = async (type: string, file: string) => {
      const initial = `initial_state { name: "i" data_type: ${type} dims: 2 data_file: "${file}" }`;
      const config = configOf(state("s", "t", `data_type: ${type} dims: -1 ${initial}`));
      return (await createStateRules(config, directory))!.states[0]!.initial;
    };
    assert.deepEqual(valuesOf(await fromFile("TYPE_FP32", "deep/long")), [1, 2]);
    const strings = await fromFile("TYPE_STRING", "strings");
    assert.deepEqual(strings.data, encodeBytesTensor(["one", ""]));
    await assert.rejects(fromFile("TYPE_STRING", "cut"), /expects 2 strings in cut.*string 1/);
    await assert.rejects(fromFile("TYPE_FP64", "deep/long"), {
      code: "INVALID_ARG",
      message: "initial_state setting expects 16 bytes, but the data provided from deep/longonly " +
        "has 12 bytes.",
    });
    await assert.rejects(fromFile("TYPE_FP32", "none"), /m\/initial_state\/none: No such file/);
    await assert.rejects(fromFile("TYPE_FP32", "../x"), /'\.\.\/x' .* outside model directory/);
    await assert.rejects(fromFile("TYPE_FP32", "link"), /leads out of the directory/);
    await assert.rejects(fromFile("TYPE_FP32", "deep"), /Is a directory/);
  } finally {
    await Deno.remove(directory, { recursive: true });
  }
});

Deno.test("createStateRules() refuses a state larger than can be", async () => {
  const config = configOf(state("s", "t", "data_type: TYPE_FP32 dims: [ 1000000, 1000000 ]"));
  await assert.rejects(createStateRules(config, "/none"), {
    code: "INVALID_ARG",
    message: /initial state of 's' must not be larger than 1073741824 bytes, got 4000000000000/,
  });
});

Deno.test("SlotState pairs states by the names of the configuration, whatever the order", async () => {
  const slot = await slotOf(TWO);
  const asked = ["OUT"];
  const outcome = slot.take({
    outputs: [floats("yB", [1], [10]), floats("OUT", [1], [7]), floats("zA", [1], [1])],
  }, asked);
  assert.deepEqual(slot.inputs().map((each) => [each.name, valuesOf(each)]), [
    ["sA", [1]],
    ["sB", [10]],
  ]);
  assert.ok("outputs" in outcome);
  assert.deepEqual(outcome.outputs.map(({ name }) => name), ["OUT"]);
});

Deno.test("StateRules.outputsWith() adds states without naming one twice", async () => {
  const rules = (await createStateRules(TWO, "/none"))!;
  assert.deepEqual(rules.outputsWith(["OUT", "yB"]), ["OUT", "yB", "zA"]);
  assert.deepEqual(rules.outputNames, ["zA", "yB"]);
});

Deno.test("SlotState.take() leaves a state in the answer when the client asked for it", async () => {
  const slot = await slotOf(TWO);
  let releaseCount = 0;
  const given = {
    outputs: [floats("zA", [1], [1]), floats("yB", [1], [2])],
    release: () => releaseCount++,
  };
  const outcome = slot.take(given, ["zA"]);
  assert.ok("outputs" in outcome);
  assert.deepEqual(outcome.outputs.map(({ name }) => name), ["zA"]);
  assert.equal(releaseCount, 0, "released by whoever sends the answer");
  outcome.release?.();
  assert.equal(releaseCount, 1);
  assert.equal(slot.take(given, ["zA", "yB"]), given, "nothing to take out, nothing copied");
});

Deno.test("SlotState keeps its values apart from buffers that are used again", async () => {
  const slot = await slotOf(TWO);
  const pooled = floats("zA", [1], [5]);
  slot.take({ outputs: [pooled] }, []);
  const shown = slot.inputs();
  pooled.data.fill(255);
  assert.deepEqual(valuesOf(slot.inputs()[0]!), [5]);
  slot.take({ outputs: [floats("zA", [1], [6])] }, []);
  slot.reset();
  assert.deepEqual(valuesOf(shown[0]!), [5], "an answer under way may still show it");
  assert.deepEqual(valuesOf(slot.inputs()[0]!), [0]);
});

Deno.test("SlotState of one sequence does not see another", async () => {
  const rules = (await createStateRules(TWO, "/none"))!;
  const [one, other] = [new SlotState(rules), new SlotState(rules)];
  one.take({ outputs: [floats("zA", [1], [5])] }, []);
  assert.deepEqual(valuesOf(other.inputs()[0]!), [0]);
  assert.deepEqual(valuesOf(new SlotState(rules).inputs()[0]!), [0]);
});

Deno.test("SlotState changes nothing for a failure, or a state that is not there", async () => {
  const slot = await slotOf(TWO);
  slot.take({ outputs: [floats("zA", [1], [5])] }, []);
  const failure = { error: new ServerError("INTERNAL", "broken") };
  assert.equal(slot.take(failure, []), failure);
  slot.take({ outputs: [floats("yB", [1], [6])] }, []);
  assert.deepEqual(slot.inputs().map(valuesOf), [[5], [6]]);
});

Deno.test("SlotState takes the states of a streaming model out of its outcome", async () => {
  const slot = await slotOf(TWO);
  const outcome = { streamed: true, reschedule: true, states: [floats("zA", [1], [3])] } as const;
  assert.equal(slot.take(outcome, []), outcome);
  assert.deepEqual(valuesOf(slot.inputs()[0]!), [3]);
  slot.take({ streamed: true }, []);
  assert.deepEqual(valuesOf(slot.inputs()[0]!), [3]);
});

Deno.test("SlotState lets a free dimension grow and refuses what does not fit", async () => {
  const config = configOf(
    state("s", "t", "data_type: TYPE_FP32 dims: [ -1, 2 ]"),
    "max_batch_size: 2",
  );
  const slot = await slotOf(config);
  assert.deepEqual(slot.inputs()[0]?.shape, [1, 1, 2]);
  slot.take({ outputs: [floats("t", [1, 3, 2], [1, 2, 3, 4, 5, 6])] }, []);
  assert.deepEqual(slot.inputs()[0]?.shape, [1, 3, 2]);
  let releaseCount = 0;
  const refused = (tensor: Tensor) => {
    const outcome = slot.take({ outputs: [tensor], release: () => releaseCount++ }, []);
    assert.ok("error" in outcome);
    assert.equal(outcome.error.code, "INTERNAL");
    return outcome.error.message;
  };
  assert.match(refused(floats("t", [1, 1, 3], [1, 2, 3])), /shape \[1,-1,2\], got \[1,1,3\]/);
  assert.match(refused(floats("t", [2], [1, 2])), /shape \[1,-1,2\], got \[2\]/);
  assert.match(
    refused({ ...floats("t", [1, 1, 2], [1, 2]), datatype: "INT32" }),
    /FP32, got INT32/,
  );
  assert.match(refused(floats("t", [1, 1, 2], [1])), /expected 8 bytes .*, got 4/);
  assert.equal(releaseCount, 4);
  assert.deepEqual(slot.inputs()[0]?.shape, [1, 3, 2], "the old value stays");
});
