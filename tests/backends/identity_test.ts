import assert from "node:assert/strict";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { runBackendSuite } from "./backend_suite.ts";
import { bytesData, type ConfigInit, openInstance, outputsOf, tensor } from "./fixture.ts";

runBackendSuite({
  name: "identity",
  open: (config, instanceCount = 1) => openInstance("identity", { config, instanceCount }),
  async failing() {
    const opened = await openInstance("identity", { config: identityConfig({ fail_every: "3" }) });
    return { ...opened, failing: 2, [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose]() };
  },
});

function identityConfig(parameters: Record<string, string> = {}): ConfigInit {
  return {
    maxBatchSize: 8,
    input: [{ name: "INPUT0", dataType: DataType.TYPE_FP32, dims: [4n] }],
    output: [{ name: "OUTPUT0", dataType: DataType.TYPE_FP32, dims: [4n] }],
    parameters: Object.fromEntries(
      Object.entries(parameters).map(([key, stringValue]) => [key, { stringValue }]),
    ),
  };
}

Deno.test("identity hands on the bytes of its inputs without a copy, with its parameters", async () => {
  await using opened = await openInstance("identity", {
    config: {
      input: [
        { name: "INPUT0", dataType: DataType.TYPE_STRING, dims: [-1n] },
        { name: "INPUT1", dataType: DataType.TYPE_BF16, dims: [2n] },
      ],
      output: [
        { name: "OUTPUT0", dataType: DataType.TYPE_STRING, dims: [-1n] },
        { name: "OUTPUT1", dataType: DataType.TYPE_BF16, dims: [2n] },
      ],
    },
  });
  const text = tensor("INPUT0", "BYTES", [2], bytesData(["a\0b", ""]));
  const numbers = tensor("INPUT1", "BF16", [2]);
  const { outcomes } = await opened.instance.execute([opened.request([text, numbers])]);
  const [first, second] = outputsOf(outcomes[0]);
  assert.equal(first?.data, text.data);
  assert.equal(second?.data, numbers.data);
  const { parameters } = outcomes[0] as { parameters?: Record<string, unknown> };
  assert.deepEqual(parameters, {
    param0: "an example string parameter",
    param1: 42n,
    param2: false,
  });
});

Deno.test("identity tells which input is missing for an output", async () => {
  await using opened = await openInstance("identity", { config: identityConfig() });
  const { outcomes } = await opened.instance.execute([opened.request([], { batchSize: 1 })]);
  assert.throws(() => outputsOf(outcomes[0]), {
    code: "UNSUPPORTED",
    message: "failed to get input 'INPUT0'",
  });
});

Deno.test("identity answers zeros for an optional input that is left out", async () => {
  const tensors = [
    { name: "0", dataType: DataType.TYPE_FP32, dims: [4n] },
    { name: "1", dataType: DataType.TYPE_STRING, dims: [-1n, 2n] },
    { name: "2", dataType: DataType.TYPE_INT64, dims: [3n] },
  ];
  await using opened = await openInstance("identity", {
    config: {
      maxBatchSize: 8,
      input: tensors.map((each, index) => ({
        ...each,
        name: `INPUT${index}`,
        optional: index > 0,
      })),
      output: tensors.map((each, index) => ({ ...each, name: `OUTPUT${index}` })),
    },
  });
  const given = tensor("INPUT0", "FP32", [2, 4]);
  const { outcomes } = await opened.instance.execute([opened.request([given], { batchSize: 2 })]);
  assert.deepEqual(
    outputsOf(outcomes[0]).slice(1).map(({ datatype, shape, data }) => ({ datatype, shape, data })),
    [
      { datatype: "BYTES", shape: [2, 1, 2], data: bytesData(["", "", "", ""]) },
      { datatype: "INT64", shape: [2, 3], data: new Uint8Array(48) },
    ],
  );
});

Deno.test("identity ends its delay when the client has gone", async () => {
  await using opened = await openInstance("identity", {
    config: identityConfig({ execute_delay_ms: "60000" }),
  });
  const controller = new AbortController();
  const input = tensor("INPUT0", "FP32", [1, 4]);
  const running = opened.instance.execute([
    opened.request([input], { signal: controller.signal }),
  ]);
  controller.abort();
  const { outcomes } = await running;
  assert.throws(() => outputsOf(outcomes[0]), { code: "CANCELLED" });
});

Deno.test("identity takes a configuration without any tensors, as the reference does", async () => {
  const config = { ...identityConfig(), input: [], output: [] };
  await using opened = await openInstance("identity", { config });
  const { outcomes } = await opened.instance.execute([opened.request([])]);
  assert.deepEqual(outputsOf(outcomes[0]), []);
});

Deno.test("identity refuses configurations that are no pairs", async () => {
  const config = identityConfig();
  await assert.rejects(
    openInstance("identity", { config: { ...config, output: [] } }),
    /as many outputs as inputs/,
  );
  await assert.rejects(
    openInstance("identity", {
      config: {
        ...config,
        output: [{ name: "OUTPUT0", dataType: DataType.TYPE_INT8, dims: [4n] }],
      },
    }),
    /TYPE_FP32 like input 'INPUT0', got TYPE_INT8/,
  );
  await assert.rejects(
    openInstance("identity", { config: identityConfig({ execute_delay_ms: "soon" }) }),
    /'execute_delay_ms'.*'soon'/,
  );
});
