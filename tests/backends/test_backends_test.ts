import assert from "node:assert/strict";
import {
  DataType,
  ModelSequenceBatching_Control_Kind as Kind,
} from "../../proto/gen/model_config_pb.ts";
import type { ExecuteResponse } from "../../backends/backend.ts";
import type { Tensor } from "../../proto/tensor.ts";
import { type ConfigInit, type OpenedModel, openInstance, tensor } from "./fixture.ts";

/**
 * The part of `backend_suite.ts` that backends pass whose tensors are fixed by their contract: the suite itself asks
 * for OUTPUT0 = INPUT0 of FP32[4], which these cannot be.
 */
interface Subject {
  readonly name: string;
  readonly config: ConfigInit;
  /** The inputs of request `index`. */
  readonly inputs: (index: number) => Tensor[];
  /** First integers of what a request gets, in order. */
  readonly answer: (index: number) => number[];
  readonly maxBatchSize: number;
}

const { TYPE_INT32, TYPE_UINT32, TYPE_UINT64, TYPE_UINT8 } = DataType;
const vector = (name: string) => ({ name, dataType: TYPE_INT32, dims: [-1n] });
const single = (name: string, dataType = TYPE_INT32) => ({ name, dataType, dims: [1n] });
const flag = (name: string, kind: Kind) => ({ name, control: [{ kind, int32FalseTrue: [0, 1] }] });
const START = flag("START", Kind.CONTROL_SEQUENCE_START);
const END = flag("END", Kind.CONTROL_SEQUENCE_END);
const READY = flag("READY", Kind.CONTROL_SEQUENCE_READY);
const CORRID = {
  name: "CORRID",
  control: [{ kind: Kind.CONTROL_SEQUENCE_CORRID, dataType: TYPE_UINT64 }],
};

function sequenceBatching(controlInput: (typeof START | typeof CORRID)[], more = {}) {
  return { case: "sequenceBatching" as const, value: { controlInput, ...more } };
}

function integers(values: Record<string, number>, shape: readonly number[]): Tensor[] {
  return Object.entries(values).map(([name, value]) => tensor(name, "INT32", shape, [value]));
}

const SUBJECTS: readonly Subject[] = [
  {
    name: "sequence",
    config: {
      input: [vector("INPUT")],
      output: [vector("OUTPUT")],
      schedulingChoice: sequenceBatching([START, READY]),
    },
    inputs: (index) => integers({ INPUT: index + 5, START: 1, READY: 1 }, [1, 1]),
    answer: (index) => [index + 5],
    maxBatchSize: 4,
  },
  {
    name: "dyna_sequence",
    config: {
      input: [vector("INPUT")],
      output: [vector("OUTPUT")],
      schedulingChoice: sequenceBatching([START, END, READY, CORRID]),
    },
    inputs: (index) => [
      ...integers({ INPUT: index + 5, START: 1, END: 1, READY: 1 }, [1, 1]),
      tensor("CORRID", "UINT64", [1, 1], Uint8Array.of(index + 1, 0, 0, 0, 0, 0, 0, 0)),
    ],
    answer: (index) => [2 * index + 6],
    maxBatchSize: 4,
  },
  {
    name: "implicit_state",
    config: {
      input: [single("INPUT"), single("TEST_CASE")],
      output: [single("OUTPUT")],
      schedulingChoice: sequenceBatching([START, END, READY]),
    },
    inputs: (index) => integers({ INPUT: index, TEST_CASE: 1, INPUT_STATE: 7 }, [1]),
    answer: (index) => [index + 7],
    maxBatchSize: 0,
  },
  {
    name: "iterative_sequence",
    config: {
      input: [single("INPUT")],
      output: [single("OUTPUT")],
      schedulingChoice: sequenceBatching([], { iterativeSequence: true }),
    },
    inputs: () => integers({ INPUT: 1 }, [1, 1]),
    answer: () => [0],
    maxBatchSize: 4,
  },
  {
    name: "repeat",
    config: {
      input: [
        vector("IN"),
        { ...vector("DELAY"), dataType: TYPE_UINT32 },
        single("WAIT", TYPE_UINT32),
      ],
      output: [single("OUT"), single("IDX", TYPE_UINT32)],
    },
    inputs: (index) => [
      tensor("IN", "INT32", [2], [index, 9]),
      tensor("DELAY", "UINT32", [2], new Uint8Array(8)),
      tensor("WAIT", "UINT32", [1], new Uint8Array(4)),
    ],
    answer: (index) => [index, 9],
    maxBatchSize: 0,
  },
  {
    name: "square",
    config: { input: [single("IN")], output: [single("OUT")] },
    inputs: () => integers({ IN: 3 }, [1]),
    answer: () => [3, 3, 3],
    maxBatchSize: 0,
  },
  {
    name: "query",
    config: {
      input: [single("INPUT")],
      output: [{ name: "OUTPUT0", dataType: TYPE_UINT8, dims: [-1n] }, {
        name: "OUTPUT1",
        dataType: TYPE_UINT8,
        dims: [-1n],
      }],
      parameters: { TEST_BYTE_SIZE: { stringValue: "4" } },
    },
    inputs: () => integers({ INPUT: 3 }, [1]),
    answer: () => [0],
    maxBatchSize: 0,
  },
];

/** Executes requests at once; all that each is answered with until its end. */
async function run(opened: OpenedModel, inputs: readonly (readonly Tensor[])[], which = 0) {
  const sent: ExecuteResponse[][] = inputs.map(() => []);
  const ends = inputs.map(() => Promise.withResolvers<void>());
  const requests = inputs.map((tensors, index) =>
    opened.request(tensors, {
      batchSize: 1,
      sequenceStart: true,
      correlationId: BigInt(index + 1),
      send(response, isFinal) {
        if (response !== undefined) sent[index]!.push(response);
        if (isFinal) ends[index]!.resolve();
        return undefined;
      },
    })
  );
  const report = await opened.instances[which]!.execute(requests);
  for (const [index, outcome] of report.outcomes.entries()) {
    if ("streamed" in outcome) await ends[index]!.promise;
    else sent[index]!.push(outcome);
  }
  return { report, sent };
}

function firstIntegers(responses: readonly ExecuteResponse[]): number[] {
  return responses.map((response) => {
    if ("error" in response) throw response.error;
    return new Int32Array(response.outputs[0]!.data.slice(0, 4).buffer)[0]!;
  });
}

/** The same bytes, `shift` bytes into another buffer. */
function shifted(input: Tensor, shift: number): Tensor {
  const block = new Uint8Array(input.data.length + 8);
  block.set(input.data, shift);
  return { ...input, data: block.subarray(shift, shift + input.data.length) };
}

for (const subject of SUBJECTS) {
  const { name, inputs, answer, maxBatchSize } = subject;
  const config = { ...subject.config, maxBatchSize };
  const test = (what: string, check: (opened: OpenedModel) => Promise<void>, instanceCount = 1) =>
    Deno.test(`${name}: ${what}`, async () => {
      await using opened = await openInstance(name, { config, instanceCount });
      await check(opened);
    });

  test("execute() answers in the order of the requests, with times in order", async (opened) => {
    const before = performance.now();
    const given = Array.from({ length: Math.max(1, maxBatchSize) }, (_, index) => inputs(index));
    const { report, sent } = await run(opened, given);
    assert.deepEqual(sent.map(firstIntegers), given.map((_, index) => answer(index)));
    assert.ok(before <= report.inputEndMs && report.inputEndMs <= report.outputStartMs);
    assert.ok(report.outputStartMs <= performance.now());
  });

  test("execute() leaves inputs as they are and takes them at any alignment", async (opened) => {
    for (let shift = 0; shift < 8; shift++) {
      const given = inputs(shift).map((each) => shifted(each, shift));
      const copies = given.map(({ data }) => data.slice());
      const { sent } = await run(opened, [given]);
      if (name !== "dyna_sequence") assert.deepEqual(firstIntegers(sent[0]!), answer(shift));
      assert.deepEqual(given.map(({ data }) => data), copies);
    }
  });

  test("execute() keeps outputs apart from later runs", async (opened) => {
    const kept = [];
    for (let index = 0; index < 10; index++) {
      kept.push((await run(opened, [inputs(index)])).sent[0]!);
    }
    kept.forEach((responses, index) => assert.deepEqual(firstIntegers(responses), answer(index)));
  });

  test("instances of one model execute at the same time", async (opened) => {
    await Promise.all([0, 1, 2].map(async (which) => {
      for (let index = 0; index < 20; index++) {
        const { sent } = await run(opened, [inputs(index)], which);
        assert.deepEqual(firstIntegers(sent[0]!), answer(index));
      }
    }));
  }, 3);

  Deno.test(`${name}: a failure stays with the request that causes it`, async () => {
    const parameters = { ...subject.config.parameters, "fail_every": { stringValue: "2" } };
    await using opened = await openInstance(name, { config: { ...config, parameters } });
    const isFailure = ([response]: ExecuteResponse[]) => "error" in response!;
    const results = [];
    for (let index = 0; index < 4; index++) {
      results.push((await run(opened, [inputs(index)])).sent[0]!);
    }
    assert.deepEqual(results.map(isFailure), [false, true, false, true]);
  });
}
