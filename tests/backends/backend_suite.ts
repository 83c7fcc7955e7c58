import assert from "node:assert/strict";
import { DataType } from "../../proto/gen/model_config_pb.ts";
import { type ConfigInit, floats, type OpenedModel, outputsOf, tensor } from "./fixture.ts";

/** What a backend brings to the suite: a model OUTPUT0 = INPUT0 of FP32 with dims [4]. */
export interface SuiteSubject {
  readonly name: string;
  /** Opens it with this configuration and so many instances. */
  open(config: ConfigInit, instanceCount?: number): Promise<OpenedModel>;
  /** A batch in which only the request at `failing` fails, and its model; undefined where none can be made. */
  readonly failing?: () => Promise<OpenedModel & { readonly failing: number }>;
}

const BATCHING: ConfigInit = {
  maxBatchSize: 8,
  input: [{ name: "INPUT0", dataType: DataType.TYPE_FP32, dims: [4n] }],
  output: [{ name: "OUTPUT0", dataType: DataType.TYPE_FP32, dims: [4n] }],
};

/** Registers the tests that every backend passes. */
export function runBackendSuite(subject: SuiteSubject): void {
  const test = (name: string, run: (opened: OpenedModel) => Promise<void>) =>
    Deno.test(`${subject.name}: ${name}`, async () => {
      await using opened = await subject.open(BATCHING);
      await run(opened);
    });

  test("execute() answers in the order of the requests", async ({ instance, request }) => {
    const requests = [1, 2, 3].map((rows) => request([rowsOf(rows, rows * 10)]));
    const { outcomes } = await instance.execute(requests);
    assert.equal(outcomes.length, 3);
    outcomes.forEach((outcome, index) => {
      const [output] = outputsOf(outcome);
      const rows = index + 1;
      assert.equal(output?.name, "OUTPUT0");
      assert.equal(output?.datatype, "FP32");
      assert.deepEqual([...output!.shape], [rows, 4]);
      assert.deepEqual(floats(output!), floats(rowsOf(rows, rows * 10)));
    });
    release(outcomes);
  });

  test("execute() reports times in order", async ({ instance, request }) => {
    const before = performance.now();
    const report = await instance.execute([request([rowsOf(1, 0)])]);
    assert.ok(before <= report.inputEndMs);
    assert.ok(report.inputEndMs <= report.outputStartMs);
    assert.ok(report.outputStartMs <= performance.now());
    release(report.outcomes);
  });

  test("execute() leaves inputs as they are", async ({ instance, request }) => {
    const input = rowsOf(2, 7);
    const copy = input.data.slice();
    release((await instance.execute([request([input]), request([rowsOf(1, 1)])])).outcomes);
    assert.deepEqual(input.data, copy);
  });

  test("execute() keeps outputs apart from later runs until they are released", async (opened) => {
    const { instance, request } = opened;
    const kept = [];
    for (let run = 0; run < 20; run++) {
      const { outcomes } = await instance.execute([request([rowsOf(1, run)])]);
      kept.push(outcomes[0]!);
    }
    kept.forEach((outcome, run) => {
      assert.deepEqual(floats(outputsOf(outcome)[0]!), floats(rowsOf(1, run)));
    });
    release(kept);
    for (let run = 0; run < 5; run++) {
      const { outcomes } = await instance.execute([request([rowsOf(1, 100 + run)])]);
      assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), floats(rowsOf(1, 100 + run)));
      release(outcomes);
    }
  });

  test("execute() takes inputs at any alignment", async ({ instance, request }) => {
    for (let shift = 0; shift < 8; shift++) {
      const aligned = rowsOf(2, shift);
      const block = new Uint8Array(64);
      block.set(aligned.data, shift);
      const data = block.subarray(shift, shift + aligned.data.length);
      const { outcomes } = await instance.execute([request([{ ...aligned, data }])]);
      assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), floats(aligned));
      release(outcomes);
    }
  });

  test("a release that is called twice does no harm", async ({ instance, request }) => {
    const { outcomes } = await instance.execute([1, 2].map((n) => request([rowsOf(1, n)])));
    for (const outcome of outcomes) {
      if (!("outputs" in outcome)) throw new Error(`no outputs: ${Deno.inspect(outcome)}`);
      outcome.release?.();
      outcome.release?.();
    }
    const { outcomes: later } = await instance.execute([request([rowsOf(1, 9)])]);
    assert.deepEqual(floats(outputsOf(later[0])[0]!), floats(rowsOf(1, 9)));
    release(later);
  });

  Deno.test(`${subject.name}: instances of one model execute at the same time`, async () => {
    await using opened = await subject.open(BATCHING, 4);
    const { instances, request } = opened;
    await Promise.all(instances.map(async (instance, which) => {
      for (let run = 0; run < 50; run++) {
        const start = which * 1000 + run;
        const { outcomes } = await instance.execute([request([rowsOf(3, start)])]);
        assert.deepEqual(floats(outputsOf(outcomes[0])[0]!), floats(rowsOf(3, start)));
        release(outcomes);
      }
    }));
  });

  Deno.test(`${subject.name}: a model without batching gets one request at a time`, async () => {
    await using opened = await subject.open({
      ...BATCHING,
      maxBatchSize: 0,
      input: [{ name: "INPUT0", dataType: DataType.TYPE_FP32, dims: [-1n, 4n] }],
      output: [{ name: "OUTPUT0", dataType: DataType.TYPE_FP32, dims: [-1n, 4n] }],
    });
    const { outcomes } = await opened.instance.execute([opened.request([rowsOf(2, 5)])]);
    const [output] = outputsOf(outcomes[0]);
    assert.deepEqual([...output!.shape], [2, 4]);
    assert.deepEqual(floats(output!), floats(rowsOf(2, 5)));
    release(outcomes);
  });

  Deno.test({
    name: `${subject.name}: a failure stays with the request that causes it`,
    ignore: subject.failing === undefined,
    async fn() {
      await using opened = await subject.failing!();
      const count = 3;
      const requests = Array.from(
        { length: count },
        (_, index) =>
          opened.request([
            opened.source.config.input[0]!.dataType === DataType.TYPE_INT64
              ? tensor("INPUT0", "INT64", [1, 2], index === opened.failing ? [0, 9] : [1, 2])
              : rowsOf(1, index),
          ]),
      );
      const { outcomes } = await opened.instance.execute(requests);
      outcomes.forEach((outcome, index) => {
        assert.equal("error" in outcome, index === opened.failing, `request ${index}`);
      });
      release(outcomes);
    },
  });
}

/** So many rows of four numbers, counting up from `start`. */
function rowsOf(rows: number, start: number) {
  const values = Array.from({ length: rows * 4 }, (_, index) => start + index);
  return tensor("INPUT0", "FP32", [rows, 4], values);
}

function release(outcomes: readonly object[]): void {
  for (const outcome of outcomes) (outcome as { release?: () => void }).release?.();
}
