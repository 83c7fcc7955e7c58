import { familyCpuUs } from "./measured_process.ts";

/** How fast calls are answered. */
export interface Rate {
  readonly perSecond: number;
  readonly p50Us: number;
  readonly p99Us: number;
  /** CPU time per call of this process and its children: whoever calls, and whoever answers. */
  readonly cpuUs: number;
}

const WARM_SHARE = 0.3;
/** Until the compiler is done with the code on the way; on a busy machine that takes longer. */
const WARM_CALLS = 5000;
const WARM_SECONDS_MAX = 8;
const warmed = new WeakSet<() => Promise<unknown>>();

/** Keeps so many calls in flight for a while, after a warm-up. */
export async function measureCalls(
  call: () => Promise<unknown>,
  concurrency: number,
  seconds: number,
): Promise<Rate> {
  await warmUp(call, concurrency, seconds * WARM_SHARE);
  const cpuBefore = await familyCpuUs(Deno.pid);
  const times = await keepBusy(call, concurrency, seconds);
  const cpuUs = await familyCpuUs(Deno.pid) - cpuBefore;
  const sorted = Float64Array.from(times.list).sort();
  const quantile = (share: number) =>
    1000 * sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
  return {
    perSecond: sorted.length / times.seconds,
    p50Us: quantile(0.5),
    p99Us: quantile(0.99),
    cpuUs: cpuUs / sorted.length,
  };
}

async function warmUp(
  call: () => Promise<unknown>,
  concurrency: number,
  seconds: number,
): Promise<void> {
  const isFirst = !warmed.has(call);
  warmed.add(call);
  let count = 0;
  let spent = 0;
  do {
    const times = await keepBusy(call, concurrency, seconds);
    count += times.list.length;
    spent += times.seconds;
  } while (isFirst && count < WARM_CALLS && spent < WARM_SECONDS_MAX);
}

/** Times of the calls in ms. */
async function keepBusy(call: () => Promise<unknown>, concurrency: number, seconds: number) {
  const list: number[] = [];
  const begin = performance.now();
  const end = begin + seconds * 1000;
  const work = async () => {
    for (let from = performance.now(); from < end;) {
      await call();
      const now = performance.now();
      list.push(now - from);
      from = now;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, work));
  return { list, seconds: (performance.now() - begin) / 1000 };
}
