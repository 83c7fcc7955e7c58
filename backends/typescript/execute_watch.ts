import type { ExecuteRequest } from "../backend.ts";
import type { WorkerSession } from "./worker_session.ts";

const TICK_MS = 250;
/** After all clients have gone a Worker has this long to stop by itself, then to show a sign of life. */
const CANCEL_GRACE_MS = 2_000;
const PING_MS = 1_000;
/** The process grew: a Worker that has not done it answers within this time. */
const MEMORY_PING_MS = 500;

/** Bounds of one execution. */
export interface ExecuteLimits {
  /** 0 = none. */
  readonly executeTimeoutMs: number;
  /** Growth of the process; 0 = none. */
  readonly memoryLimitBytes: number;
}

/**
 * Ends a Worker whose batch takes too long, takes too much memory, or does not stop when all its clients have gone.
 * Looks four times a second while batches run; a batch costs it nothing.
 */
export class ExecuteWatch implements Disposable {
  readonly #session: WorkerSession;
  readonly #limits: ExecuteLimits;
  readonly #now: () => number;
  #timer: ReturnType<typeof setInterval> | undefined;
  #requests: readonly ExecuteRequest[] | undefined;
  #startMs = 0;
  #startBytes = 0;
  /** So large must the process be before the Worker is asked how much of that it has, whatever batch runs. */
  #askBytes: number | undefined;
  #cancelledMs: number | undefined;
  #isPinging = false;
  #isAsking = false;

  constructor(session: WorkerSession, limits: ExecuteLimits, now: () => number) {
    this.#session = session;
    this.#limits = limits;
    this.#now = now;
  }

  /** A batch begins. */
  wake(): void {
    this.#timer ??= setInterval(() => this.#look(), TICK_MS);
  }

  #look(): void {
    const running = this.#session.runningRequests;
    if (running === undefined) {
      this.#checkGrowth(Deno.memoryUsage().rss);
      return this[Symbol.dispose]();
    }
    const now = this.#now();
    if (running !== this.#requests) {
      this.#requests = running;
      this.#startMs = now - TICK_MS;
      this.#startBytes = Deno.memoryUsage().rss;
      this.#cancelledMs = undefined;
    }
    this.#checkTime(now);
    this.#checkMemory();
    this.#checkCancelled(now, running);
  }

  #checkTime(now: number): void {
    const { executeTimeoutMs } = this.#limits;
    if (executeTimeoutMs === 0 || now - this.#startMs < executeTimeoutMs) return;
    this.#session.link.end(`\`execute\` took longer than ${executeTimeoutMs / 1000} s`);
  }

  /** The process grew by too much: was it this Worker? One that cannot answer, or has it all, is ended. */
  #checkMemory(): void {
    const { memoryLimitBytes } = this.#limits;
    if (memoryLimitBytes === 0 || this.#isPinging) return;
    const rss = Deno.memoryUsage().rss;
    const grown = rss - this.#startBytes;
    if (grown < memoryLimitBytes) return this.#checkGrowth(rss);
    const onSilence = () => this.#end(`memory grew by ${mib(grown)} MiB during one \`execute\``);
    this.#ping(MEMORY_PING_MS, onSilence, (ownBytes) => {
      this.#startBytes = rss;
      this.#judge(ownBytes, rss);
    });
  }

  /** The process grew since the Worker was asked last: a model may take its memory over many batches. */
  #checkGrowth(rss: number): void {
    const { memoryLimitBytes } = this.#limits;
    if (memoryLimitBytes === 0 || this.#isAsking) return;
    this.#askBytes ??= rss + memoryLimitBytes;
    if (rss < this.#askBytes) return;
    this.#isAsking = true;
    // One that is at work answers later: that it is silent says nothing.
    this.#session.link.ask({ what: "ping" })
      .then((ownBytes) => this.#judge(ownBytes as number, rss), () => {})
      .finally(() => this.#isAsking = false);
  }

  #judge(ownBytes: number, rss: number): void {
    const { memoryLimitBytes } = this.#limits;
    if (ownBytes >= memoryLimitBytes) return this.#end(`it has ${mib(ownBytes)} MiB of memory`);
    this.#askBytes = rss + Math.max(memoryLimitBytes - ownBytes, memoryLimitBytes / 8);
  }

  #end(what: string): void {
    const limit = mib(this.#limits.memoryLimitBytes);
    this.#session.link.end(`${what}, the limit is ${limit} MiB (memory_limit_mib)`);
  }

  #checkCancelled(now: number, running: readonly ExecuteRequest[]): void {
    if (!running.every(({ signal }) => signal?.aborted)) return;
    this.#cancelledMs ??= now;
    if (this.#isPinging || now - this.#cancelledMs < CANCEL_GRACE_MS) return;
    const { link } = this.#session;
    const onSilence = () => link.end("its clients have gone, and it does not stop");
    this.#ping(PING_MS, onSilence, () => this.#cancelledMs = undefined);
  }

  /** Asks for a sign of life; its answer is the memory of the Worker. */
  #ping(limitMs: number, onSilence: () => void, onAnswer: (ownBytes: number) => void): void {
    this.#isPinging = true;
    const timer = setTimeout(onSilence, limitMs);
    this.#session.link.ask({ what: "ping" })
      // A Worker that ended meanwhile needs no judgement.
      .then((ownBytes) => onAnswer(ownBytes as number), () => {})
      .finally(() => {
        clearTimeout(timer);
        this.#isPinging = false;
      });
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#requests = undefined;
  }
}

function mib(bytes: number): number {
  return Math.round(bytes / 2 ** 20);
}
