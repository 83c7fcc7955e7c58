import assert from "node:assert/strict";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { FakeClock } from "../../server/core/fake_clock.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { filledIntegers, readIntegers } from "../integer_tensor.ts";
import { createFixtureInstance, sequenceConfig } from "../sequence_fixture.ts";
import { createImplicitStateBackend } from "./implicit_state_backend.ts";

function stateConfig({ hasState = true, dataType = DataType.TYPE_INT32 } = {}) {
  const config = sequenceConfig({ controls: ["START", "END", "READY"] });
  config.maxBatchSize = 0;
  const [input, output] = [config.input[0]!, config.output[0]!];
  input.dims = output.dims = [1n];
  config.input.push({ ...input, name: "TEST_CASE" });
  const { value } = config.schedulingChoice;
  if (hasState && value !== undefined && "state" in value) {
    value.state.push({
      $typeName: "inference.ModelSequenceBatching.State",
      inputName: "INPUT_STATE",
      outputName: "OUTPUT_STATE",
      dataType,
      dims: [1n],
      initialState: [],
      useSameBufferForInputOutput: false,
      useGrowableMemory: false,
    });
  }
  return config;
}

async function run(testCase: number, given: { state?: number; hasState?: boolean } = {}) {
  const config = stateConfig(given);
  await using instance = await createFixtureInstance(
    createImplicitStateBackend,
    config,
    new FakeClock(),
  );
  const inputs = [filledIntegers("INPUT", [1], 4), filledIntegers("TEST_CASE", [1], testCase)];
  if (given.state !== undefined) inputs.push(filledIntegers("INPUT_STATE", [1], given.state));
  const outputs = ["OUTPUT", "OUTPUT_STATE"];
  const { outcomes } = await instance.execute([executeRequest({ inputs, outputs })]);
  const [outcome] = outcomes as { error?: Error; outputs: Parameters<typeof readIntegers> }[];
  if (outcome?.error !== undefined) throw outcome.error;
  return Object.fromEntries(outcome!.outputs.map((each) => [each.name, readIntegers(each)[0]]));
}

Deno.test("implicit_state adds to the state, and updates it or not", async () => {
  assert.deepEqual(await run(1, { state: 5 }), { OUTPUT: 9 });
  assert.deepEqual(await run(2, { state: 5 }), { OUTPUT: 9, OUTPUT_STATE: 9 });
});

Deno.test("implicit_state tells what it cannot do", async () => {
  await assert.rejects(run(0, { state: 0 }), {
    code: "INVALID_ARG",
    message: "state 'undefined_state' is not a valid state name.",
  });
  await assert.rejects(run(0, { hasState: false }), {
    code: "INVALID_ARG",
    message: "unable to add state 'undefined_state'. State configuration is missing for model 'm'.",
  });
  await assert.rejects(run(3, { state: 0 }), { code: "UNSUPPORTED", message: /memory in GPU/ });
  await assert.rejects(run(4, { state: 0 }), /0, 1, 2 or 3, got 4/);
  await assert.rejects(run(1), { code: "UNSUPPORTED", message: /get input 'INPUT_STATE'/ });
});

Deno.test("implicit_state refuses a state of another datatype", async () => {
  const config = stateConfig({ dataType: DataType.TYPE_FP32 });
  await assert.rejects(
    createFixtureInstance(createImplicitStateBackend, config, new FakeClock()),
    /expected state 'INPUT_STATE' of TYPE_INT32, got TYPE_FP32/,
  );
});
