import { SYSTEM_TIMERS } from "../pause.ts";

/** The value of `waiting`, if it comes in time; the error of `onLate` otherwise. 0 = no limit. */
export async function within<Value>(
  waiting: Promise<Value>,
  limitMs: number,
  onLate: () => Error,
): Promise<Value> {
  if (limitMs === 0) return await waiting;
  const late = Promise.withResolvers<never>();
  const timer = SYSTEM_TIMERS.setTimer(limitMs, () => late.reject(onLate()));
  try {
    return await Promise.race([waiting, late.promise]);
  } finally {
    timer.cancel();
    // A failure that comes later is nobody's any more.
    waiting.catch(() => {});
  }
}
