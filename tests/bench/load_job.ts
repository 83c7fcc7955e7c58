/** What a load generator is asked to do; travels as JSON on its command line. */
export interface LoadJob {
  readonly port: number;
  readonly way: Way;
  readonly concurrency: number;
  readonly warmSeconds: number;
  /** Answers that must have come before measuring begins, however slow they are; absent = none. */
  readonly warmRequests?: number;
  readonly seconds: number;
  /** HTTP path, or gRPC method path. */
  readonly path: string;
  /** Request header fields (HTTP only). */
  readonly headers: readonly (readonly [string, string])[];
  /** File with the request's body, or with the gRPC message. */
  readonly bodyFile: string;
  /** Each of the `concurrency` places sends one long sequence, of its own id (gRPC calls only). */
  readonly isSequence?: boolean;
  /** Answers to wait for before a stream sends the next message; 1 when absent. */
  readonly responsesPerRequest?: number;
}

/** Ways to bring a request to a server. */
export type Way = "http-binary" | "http-json" | "grpc" | "grpc-stream" | "http-get";

/** What the generator found out in its measured seconds. */
export interface LoadResult {
  readonly requests: number;
  readonly seconds: number;
  readonly p50Us: number;
  readonly p99Us: number;
  readonly errors: number;
  readonly firstError: string;
}

/** A warm-up takes at most so many times as long as it should. */
const WARM_FACTOR_MAX = 5;

/** Counts answers and their times while the measurement is on. */
export class Meter {
  readonly #job: LoadJob;
  readonly #latencies: Float64Array;
  #count = 0;
  #totalCount = 0;
  #errors = 0;
  #firstError = "";
  #isMeasuring = false;
  isOver = false;

  constructor(job: LoadJob) {
    this.#job = job;
    this.#latencies = new Float64Array(4_000_000);
  }

  /** One answer came, to a request sent at `sentAt`. */
  record(sentAt: number): void {
    this.#totalCount++;
    if (!this.#isMeasuring) return;
    const index = this.#count++;
    if (index < this.#latencies.length) this.#latencies[index] = performance.now() - sentAt;
  }

  fail(text: string): void {
    if (this.#errors++ === 0) this.#firstError = text;
  }

  /** Lets the load run: warm-up, then the measured time; `mark` is called at its begin and end. */
  async run(mark: (what: "begin" | "end") => void): Promise<LoadResult> {
    await this.#warmUp();
    const begin = performance.now();
    mark("begin");
    this.#isMeasuring = true;
    await pause(this.#job.seconds);
    this.#isMeasuring = false;
    mark("end");
    const seconds = (performance.now() - begin) / 1000;
    this.isOver = true;
    const sorted = this.#latencies.subarray(0, Math.min(this.#count, this.#latencies.length));
    sorted.sort();
    const quantile = (share: number) =>
      1000 * (sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0);
    return {
      requests: this.#count,
      seconds,
      p50Us: quantile(0.5),
      p99Us: quantile(0.99),
      errors: this.#errors,
      firstError: this.#firstError,
    };
  }

  /** On a busy machine code is compiled after as many calls as anywhere, but not in the same time. */
  async #warmUp(): Promise<void> {
    const { warmSeconds, warmRequests = 0 } = this.#job;
    for (let turn = 0; turn < WARM_FACTOR_MAX; turn++) {
      await pause(warmSeconds);
      if (this.#totalCount >= warmRequests) return;
    }
  }
}

function pause(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}
