import assert from "node:assert/strict";
import { DeadlineHeap } from "./deadline_heap.ts";
import { Job } from "./job.ts";

function jobAt(deadlineMs: number): Job {
  const job = new Job({
    id: "",
    correlationId: 0n,
    batchSize: 1,
    inputs: [],
    outputs: [],
    parameters: {},
    signal: undefined,
    priority: 0,
    timeoutUs: 0,
    startMs: 0,
    onDone: () => {},
  });
  job.deadlineMs = deadlineMs;
  return job;
}

Deno.test("DeadlineHeap gives the earliest deadline, whatever is added and removed", () => {
  const heap = new DeadlineHeap();
  const kept: Job[] = [];
  let state = 1;
  for (let step = 0; step < 2000; step++) {
    state = (state * 48271) % 2147483647;
    if (state % 3 !== 0 || kept.length === 0) {
      const job = jobAt(state % 997);
      kept.push(job);
      heap.add(job);
    } else {
      const [job] = kept.splice(state % kept.length, 1);
      heap.remove(job!);
      heap.remove(job!);
    }
    assert.equal(heap.length, kept.length);
    assert.equal(
      heap.earliest?.deadlineMs,
      kept.length === 0 ? undefined : Math.min(...kept.map(({ deadlineMs }) => deadlineMs)),
    );
  }
});
