import assert from "node:assert/strict";
import type { InferRequest } from "../../../proto/infer.ts";
import { ServerError } from "../../../proto/status.ts";
import {
  byteTensor,
  ensembleConfig,
  EnsembleFixture,
  type FakeStepOptions,
  type SentRequest,
  type StepDescription,
} from "./ensemble_fixture.ts";

const RUNS = 400;
const REQUESTS_PER_RUN = 6;

type Random = (below: number) => number;

function createRandom(seed: number): Random {
  let state = seed >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** One step of a random graph; its outputs are sums over its inputs, or the first input itself. */
interface RandomStep {
  readonly name: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly isView: boolean;
  /** Undefined = not decoupled. */
  readonly responseCount: number | undefined;
}

interface RandomGraph {
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly steps: readonly RandomStep[];
}

function createGraph(random: Random): RandomGraph {
  const inputs = Array.from({ length: 1 + random(2) }, (_, index) => `X${index}`);
  const tensors = [...inputs];
  const stepCount = 1 + random(8);
  const decoupledIndex = random(3) === 0 ? random(stepCount) : -1;
  const steps = Array.from({ length: stepCount }, (_, index): RandomStep => {
    const read = new Set(
      Array.from({ length: 1 + random(3) }, () => tensors[random(tensors.length)]!),
    );
    const outputs = Array.from({ length: 1 + random(2) }, (_, output) => `t${index}_${output}`);
    tensors.push(...outputs);
    return {
      name: `m${index}`,
      inputs: [...read],
      outputs,
      isView: random(3) === 0,
      responseCount: index === decoupledIndex ? random(4) : undefined,
    };
  });
  const read = new Set(steps.flatMap((step) => step.inputs));
  return {
    inputs,
    outputs: tensors.filter((tensor) => !read.has(tensor) && tensor.startsWith("t")),
    steps,
  };
}

function outputByte(
  { isView }: RandomStep,
  inputs: readonly number[],
  output: number,
  index: number,
) {
  return isView
    ? inputs[0]!
    : (inputs.reduce((sum, byte) => sum + byte, 0) + 7 * output + index + 1) % 250;
}

/** What a request is answered with, one record per response. */
function expectedAnswers(
  graph: RandomGraph,
  given: Readonly<Record<string, number>>,
  outputs: readonly string[],
): Record<string, number>[] {
  const values = new Map<string, number>();
  for (const [name, byte] of Object.entries(given)) values.set(`${name} 0`, byte);
  for (const step of graph.steps) {
    const first = step.responseCount === undefined ? undefined : 0;
    for (let index = 0; index < (step.responseCount ?? 4); index++) {
      const inputs = step.inputs.map((name) => values.get(`${name} ${first ?? index}`));
      if (inputs.includes(undefined)) continue;
      for (const [place, name] of step.outputs.entries()) {
        const turn = first === undefined ? 0 : index;
        values.set(`${name} ${index}`, outputByte(step, inputs as number[], place, turn));
      }
    }
  }
  return [0, 1, 2, 3].flatMap((index) => {
    const answer = outputs.map((name) => [name, values.get(`${name} ${index}`)] as const);
    return answer.some(([, byte]) => byte === undefined)
      ? []
      : [Object.fromEntries(answer) as Record<string, number>];
  });
}

function modelOptions(step: RandomStep, random: Random): FakeStepOptions {
  const compute = ({ inputs }: InferRequest, index: number) =>
    step.outputs.map((name, place) => {
      const bytes = step.inputs.map((input) => inputs.find((tensor) => tensor.name === input)!);
      // What was released holds this byte: nobody may still read it.
      if (bytes.some(({ data }) => data[0] === 255)) throw new Error("An input was released");
      return byteTensor(name, outputByte(step, bytes.map(({ data }) => data[0]!), place, index));
    });
  const first = step.inputs[0]!;
  const view = ({ inputs }: InferRequest) =>
    step.outputs.map((name) => ({ ...inputs.find((tensor) => tensor.name === first)!, name }));
  return {
    inputs: step.inputs,
    outputs: step.outputs,
    delayMs: random(6),
    refuses: random(2) === 0,
    failure: ({ id }) =>
      id.split(" ").includes(step.name) ? new ServerError("INTERNAL", "broken") : undefined,
    ...(step.responseCount === undefined ? {} : { responseCount: step.responseCount }),
    ...(step.isView ? { compute: view, isView: true } : { compute }),
  };
}

interface Case {
  readonly sent: SentRequest;
  readonly expected: Record<string, number>[];
  readonly mayFail: boolean;
}

function sendRandom(fixture: EnsembleFixture, graph: RandomGraph, random: Random): Case {
  const given = Object.fromEntries(graph.inputs.map((name) => [name, random(200)]));
  const outputs = graph.outputs.filter(() => random(3) > 0);
  if (outputs.length === 0) outputs.push(graph.outputs[0]!);
  const failing = random(4) === 0 ? graph.steps[random(graph.steps.length)]!.name : "";
  const controller = new AbortController();
  const isCancelled = random(4) === 0;
  if (isCancelled) fixture.clock.setTimer(random(15), () => controller.abort());
  const sent = fixture.send(given, { id: failing, outputs, signal: controller.signal });
  return {
    sent,
    expected: expectedAnswers(graph, given, outputs),
    mayFail: isCancelled || failing !== "",
  };
}

function bytesOf({ answers }: SentRequest): Record<string, number>[] {
  return answers.flatMap(({ response }) =>
    response !== undefined && "outputs" in response
      ? [Object.fromEntries(response.outputs.map(({ name, data }) => [name, data[0]!]))]
      : []
  );
}

function assertAnswered({ sent, expected, mayFail }: Case): void {
  assert.equal(sent.doneCount, 1, "answered exactly once");
  assert.equal(sent.answers.filter(({ isFinal }) => isFinal).length, 1, "one final answer");
  assert.ok(sent.answers.at(-1)!.isFinal);
  const bytes = bytesOf(sent).map((answer) => JSON.stringify(answer)).sort();
  const all = expected.map((answer) => JSON.stringify(answer)).sort();
  if (sent.error === undefined) assert.deepEqual(bytes, all);
  else {
    assert.ok(mayFail, sent.error.message);
    for (const answer of bytes) {
      assert.ok(all.includes(answer), "only right answers before the end");
    }
  }
  for (const { response } of sent.answers) {
    if (response !== undefined && "release" in response) response.release?.();
  }
}

async function runOnce(seed: number): Promise<void> {
  const random = createRandom(seed);
  const graph = createGraph(random);
  const steps = graph.steps.map(({ name, inputs, outputs }): StepDescription => [
    name,
    Object.fromEntries(inputs.map((tensor) => [tensor, tensor])),
    Object.fromEntries(outputs.map((tensor) => [tensor, tensor])),
  ]);
  const fixture = new EnsembleFixture(
    ensembleConfig(steps, { ...graph, maxInflightRequests: random(4) }),
    Object.fromEntries(graph.steps.map((step) => [step.name, modelOptions(step, random)])),
  );
  fixture.releasesAnswers = false;
  const cases: Case[] = [];
  for (let index = 0; index < REQUESTS_PER_RUN; index++) {
    cases.push(sendRandom(fixture, graph, random));
    if (random(2) === 0) await fixture.clock.advance(random(6));
  }
  await fixture.clock.advance(1000);
  for (const each of cases) assertAnswered(each);
  assert.equal(fixture.scheduler.inflightCount, 0);
  assert.equal(fixture.clock.timerCount, 0);
  for (const { inflightCount, waitingCount } of fixture.gates) {
    assert.deepEqual([inflightCount, waitingCount], [0, 0]);
  }
  for (const { unreleasedCount, faults, inflightCount } of fixture.models.values()) {
    assert.deepEqual([unreleasedCount, faults, inflightCount], [0, [], 0]);
  }
  const { received, success, failures } = fixture.statistics.snapshot();
  assert.equal(received, success + failures.OTHER + failures.CANCELED);
}

Deno.test("EnsembleScheduler answers every request of random graphs exactly once, and frees all", async () => {
  for (let seed = 1; seed <= RUNS; seed++) {
    try {
      await runOnce(seed);
    } catch (cause) {
      throw new Error(`Seed ${seed}`, { cause });
    }
  }
});
