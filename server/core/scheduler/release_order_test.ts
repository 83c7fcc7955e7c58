import assert from "node:assert/strict";
import { ServerError } from "../../../proto/status.ts";
import { Job } from "./job.ts";
import { ReleaseOrder } from "./release_order.ts";

/** A small generator of equal sequences for equal seeds (mulberry32). */
function createRandom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
}

interface Sent {
  readonly job: Job;
  readonly abort: AbortController;
  sentCount: number;
  readonly received: string[];
  endCount: number;
  isFinalSent: boolean;
  isSettled: boolean;
}

/** Jobs that send and end at random; everything that arrives goes to one log. */
class Play {
  readonly log: { index: number; text: string }[] = [];
  readonly jobs: Sent[] = [];
  readonly waits: Promise<void>[] = [];
  readonly order = new ReleaseOrder((job) => job.settle(job.outcome!, () => this.order.advance()));
  readonly #random: (below: number) => number;

  constructor(random: (below: number) => number) {
    this.#random = random;
  }

  addBatch(): void {
    const added = Array.from({ length: 1 + this.#random(4) }, () => this.#createJob());
    this.order.add(added.map(({ job }) => job));
  }

  #createJob(): Sent {
    const index = this.jobs.length;
    const abort = new AbortController();
    const receive = (text: string, isFinal: boolean) => {
      assert.equal(sent.received.at(-1)?.endsWith("!") ?? false, false, "nothing after the final");
      sent.received.push(isFinal ? `${text}!` : text);
      this.log.push({ index, text });
    };
    const job = new Job({
      id: String(index),
      correlationId: 0n,
      batchSize: 1,
      inputs: [],
      outputs: [],
      parameters: {},
      signal: abort.signal,
      priority: 0,
      timeoutUs: 0,
      startMs: 0,
      onDone: (_job, response) => {
        sent.endCount++;
        if (response !== undefined) receive("outcome", true);
      },
      ...(this.#random(4) === 0 ? {} : {
        onResponse: (response, isFinal) => {
          const value = response === undefined || "error" in response
            ? "flag"
            : String(response.parameters?.number);
          receive(value, isFinal);
          return undefined;
        },
      }),
    });
    job.state = "executing";
    const sent: Sent = {
      job,
      abort,
      sentCount: 0,
      received: [],
      endCount: 0,
      isFinalSent: false,
      isSettled: false,
    };
    this.jobs.push(sent);
    return sent;
  }

  /** One thing happens to one job; with `isEnding` only what brings it to its end. */
  act(sent: Sent, isEnding: boolean): void {
    const choice = isEnding ? 3 + this.#random(2) : this.#random(6);
    if (choice <= 2 && !sent.isFinalSent && sent.job.state !== "done") {
      const parameters = { number: BigInt(sent.sentCount++) };
      const wait = sent.job.send({ outputs: [], parameters }, false);
      if (wait !== undefined) this.waits.push(wait);
    } else if (choice === 3 && !sent.isFinalSent && sent.job.state !== "done") {
      sent.isFinalSent = true;
      sent.job.send(undefined, true);
    } else if (choice === 4 && !sent.isSettled) {
      sent.isSettled = true;
      const isFailed = this.#random(4) === 0;
      sent.job.outcome = isFailed
        ? { error: new ServerError("INTERNAL", "no") }
        : { streamed: true };
      this.order.advance();
    } else if (choice === 5 && this.#random(5) === 0) sent.abort.abort();
  }
}

Deno.test("ReleaseOrder keeps requests in order, each with its own order, through 100,000 random steps", async () => {
  for (let seed = 1; seed <= 1000; seed++) {
    const random = createRandom(seed);
    const play = new Play(random);
    for (let step = 0; step < 100; step++) {
      if (play.jobs.length === 0 || random(10) === 0) play.addBatch();
      play.act(play.jobs[random(play.jobs.length)]!, false);
    }
    for (let left = 0; left < 10_000 && play.jobs.some(({ endCount }) => endCount === 0); left++) {
      play.act(play.jobs[random(play.jobs.length)]!, true);
    }
    for (const { endCount, received, sentCount, abort, job } of play.jobs) {
      assert.equal(endCount, 1, `seed ${seed}`);
      assert.equal(job.state, "done");
      const numbers = received.filter((text) => /^\d/.test(text)).map(Number);
      // What was held when the client went away is dropped.
      const expected = abort.signal.aborted
        ? [...numbers].sort((a, b) => a - b)
        : numbers.map((_, index) => index);
      assert.deepEqual(numbers, expected, `seed ${seed}`);
      const isStreamed = !received.includes("outcome!");
      if (isStreamed && !abort.signal.aborted) assert.equal(numbers.length, sentCount);
    }
    const turns = play.log.map(({ index }) => index);
    assert.deepEqual(turns, [...turns].sort((a, b) => a - b), `seed ${seed}`);
    // Whoever was asked to wait may go on.
    await Promise.all(play.waits);
  }
});
