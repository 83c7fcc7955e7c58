import type { ExecuteRequest } from "../backend.ts";
import type { WorkerSession } from "./worker_session.ts";

const TICK_MS = 250;
/** After all clients have gone a Worker has this long to stop by itself, then to show a sign of life. */
const CANCEL_GRACE_MS = 2_000;
const PING_MS = 1_000;

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
  #cancelledMs: number | undefined;
  #isPinging = false;

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
    if (running === undefined) return this[Symbol.dispose]();
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

  #checkMemory(): void {
    const { memoryLimitBytes } = this.#limits;
    if (memoryLimitBytes === 0) return;
    const grown = Deno.memoryUsage().rss - this.#startBytes;
    if (grown < memoryLimitBytes) return;
    const mib = (bytes: number) => Math.round(bytes / 2 ** 20);
    this.#session.link.end(
      `memory grew by ${mib(grown)} MiB during one \`execute\`, the limit is ` +
        `${mib(memoryLimitBytes)} MiB (memory_limit_mib)`,
    );
  }

  #checkCancelled(now: number, running: readonly ExecuteRequest[]): void {
    if (!running.every(({ signal }) => signal?.aborted)) return;
    this.#cancelledMs ??= now;
    if (this.#isPinging || now - this.#cancelledMs < CANCEL_GRACE_MS) return;
    this.#isPinging = true;
    const { link } = this.#session;
    const timer = setTimeout(() => {
      link.end("its clients have gone, and it does not stop");
    }, PING_MS);
    link.ask({ what: "ping" }).then(() => {}, () => {}).finally(() => {
      clearTimeout(timer);
      this.#isPinging = false;
      this.#cancelledMs = undefined;
    });
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#requests = undefined;
  }
}
