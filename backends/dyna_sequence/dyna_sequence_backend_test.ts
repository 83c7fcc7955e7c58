import assert from "node:assert/strict";
import { encodeBytesTensor } from "../../proto/bytes_tensor.ts";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { FakeClock } from "../../server/core/fake_clock.ts";
import { executeRequest } from "../execute_request_fixture.ts";
import { filledIntegers, readIntegers } from "../integer_tensor.ts";
import { controlInput, createFixtureInstance, sequenceConfig } from "../sequence_fixture.ts";
import { createDynaSequenceBackend } from "./dyna_sequence_backend.ts";

const CONTROLS = ["START", "END", "READY", "CORRID"] as const;

function request(
  id: bigint | string,
  { start = 0, end = 0, ready = 1, input = 0 }: Record<string, number>,
) {
  const corrid = typeof id === "string"
    ? { datatype: "BYTES" as const, data: encodeBytesTensor([id]) }
    : { datatype: "UINT64" as const, data: new Uint8Array(BigUint64Array.of(id).buffer) };
  return executeRequest({
    inputs: [
      filledIntegers("INPUT", [1, 1], input),
      controlInput("START", start),
      controlInput("END", end),
      controlInput("READY", ready),
      { name: "CORRID", shape: [1, 1], ...corrid },
    ],
    outputs: ["OUTPUT"],
  });
}

function open(correlationType = DataType.TYPE_UINT64) {
  const config = sequenceConfig({ controls: CONTROLS, correlationType });
  return createFixtureInstance(createDynaSequenceBackend, config, new FakeClock());
}

function sumOf(outcome: unknown): number[] {
  const { outputs, error } = outcome as { outputs: Parameters<typeof readIntegers>; error?: Error };
  if (error !== undefined) throw error;
  return outputs.flatMap((output) => [...readIntegers(output)]);
}

Deno.test("dyna_sequence follows the correlation id, whatever the place in the batch", async () => {
  await using instance = await open();
  await instance.execute([
    request(7n, { start: 1, input: 1 }),
    request(8n, { start: 1, input: 5 }),
  ]);
  const { outcomes } = await instance.execute([
    request(8n, { input: 6 }),
    request(1n, { ready: 0, input: 100 }),
    request(7n, { input: 2, end: 1 }),
  ]);
  assert.deepEqual(outcomes.map(sumOf), [[11], [], [10]]);
  // Seven is forgotten now, eight is not.
  const later = await instance.execute([request(7n, { input: 1 }), request(8n, { input: 1 })]);
  assert.deepEqual(later.outcomes.map(sumOf), [[1], [12]]);
});

Deno.test("dyna_sequence cuts the id to 32 bits", async () => {
  await using instance = await open();
  const { outcomes } = await instance.execute([
    request(2n ** 32n * 5n + 2n ** 31n, { start: 1, end: 1, input: 1 }),
  ]);
  assert.deepEqual(sumOf(outcomes[0]), [-(2 ** 31) + 1]);
});

Deno.test("dyna_sequence reads numbers out of string ids", async () => {
  await using instance = await open(DataType.TYPE_STRING);
  const { outcomes } = await instance.execute([
    request("12", { start: 1, end: 1, input: 1 }),
    request(" -3rd", { start: 1, end: 1, input: 1 }),
    request("abc", { start: 1, end: 1, input: 1 }),
  ]);
  assert.deepEqual(outcomes.slice(0, 2).map(sumOf), [[13], [-2]]);
  assert.throws(() => sumOf(outcomes[2]), {
    code: "INVALID_ARG",
    message: /correlation ID to be decodable into an integer/,
  });
});

Deno.test("dyna_sequence refuses an id twice in one batch", async () => {
  await using instance = await open();
  const { outcomes } = await instance.execute([
    request(7n, { start: 1, input: 1 }),
    request(7n, { input: 2 }),
  ]);
  assert.deepEqual(sumOf(outcomes[0]), [1]);
  assert.throws(() => sumOf(outcomes[1]), { code: "UNSUPPORTED", message: /same Correlation ID/ });
});
