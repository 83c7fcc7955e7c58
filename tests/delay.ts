/** Resolves after `ms`; only for tests that run real processes. */
export function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Looks every `stepMs` until `isDone()` or `limitMs` passed; tells which. */
export async function waitUntil(
  isDone: () => boolean | Promise<boolean>,
  limitMs: number,
  stepMs = 20,
): Promise<boolean> {
  const limit = performance.now() + limitMs;
  while (!await isDone()) {
    if (performance.now() > limit) return false;
    await delay(stepMs);
  }
  return true;
}
