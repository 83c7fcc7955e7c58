// deno-lint-ignore-file camelcase -- the names of config.pbtxt
import assert from "node:assert/strict";
import type { ModelConfigObject } from "./model_config_api.ts";
import { ConfigBuilder } from "./worker_config.ts";

function builder(given: Partial<ModelConfigObject> = {}): ConfigBuilder {
  const config = { name: "m", backend: "typescript", max_batch_size: 0, input: [], output: [] };
  return new ConfigBuilder({ ...config, parameters: {}, ...given } as ModelConfigObject);
}

const IN = { name: "IN", dataType: "TYPE_FP32", dims: [-1] };

Deno.test("ConfigBuilder completes what is missing", () => {
  const { config } = builder().setMaxBatchSize(8).setDynamicBatching().setDecoupled(true)
    .addInput({ ...IN, optional: true }).addOutput({ ...IN, name: "OUT" });
  assert.equal(config.max_batch_size, 8);
  assert.deepEqual(config.dynamic_batching, {});
  assert.deepEqual(config.model_transaction_policy, { decoupled: true });
  const tensor = { data_type: "TYPE_FP32", dims: [-1] };
  assert.deepEqual(config.input, [{ name: "IN", ...tensor, optional: true }]);
  assert.deepEqual(config.output, [{ name: "OUT", ...tensor }]);
});

Deno.test("ConfigBuilder keeps what is configured and agrees", () => {
  const input = [{ name: "IN", data_type: "TYPE_FP32", dims: [-1], format: "FORMAT_NONE" }];
  const { config } = builder({ input, dynamic_batching: { preferred_batch_size: [4] } })
    .addInput(IN).setDynamicBatching();
  assert.deepEqual(config.input, input);
  assert.deepEqual(config.dynamic_batching, { preferred_batch_size: [4] });
});

Deno.test("ConfigBuilder refuses conflicts, naming both sides", () => {
  const given = builder({
    max_batch_size: 8,
    input: [{ name: "IN", data_type: "TYPE_INT8", dims: [4], optional: true }],
    model_transaction_policy: { decoupled: false },
    sequence_batching: {},
  });
  const int8 = { name: "IN", dataType: "TYPE_INT8", dims: [4] };
  assert.throws(() => given.setMaxBatchSize(4), /max_batch_size 8.*only 4/);
  assert.throws(() => given.addInput(IN), /TYPE_INT8 for input 'IN'.*provides TYPE_FP32/);
  assert.throws(() => given.addInput({ ...int8, dims: [5] }), /dims \[5\].*dims \[4\]/);
  assert.throws(() => given.addInput({ ...int8, optional: false }), /optional/);
  assert.throws(() => given.setDecoupled(true), /decoupled: false/);
  assert.throws(() => given.setDynamicBatching(), /sequence_batching/);
});

Deno.test("ConfigBuilder refuses what is no declaration", () => {
  assert.throws(() => builder().setMaxBatchSize(-1), /whole number/);
  assert.throws(() => builder().addInput({ ...IN, name: "" }), /needs a 'name'/);
  assert.throws(() => builder().addInput({ ...IN, dataType: "FP32" }), /"TYPE_FP32"/);
  assert.throws(() => builder().addInput({ ...IN, dims: [-2] }), /needs 'dims'/);
  assert.throws(() => builder().addOutput({ ...IN, optional: true } as typeof IN), /optional/);
  assert.throws(() => builder().setDecoupled("yes" as never), /true or false/);
});
