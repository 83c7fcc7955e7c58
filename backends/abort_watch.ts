import type { ExecuteRequest } from "./backend.ts";

/** Watches the signals of a batch. */
export interface AbortWatch {
  /** True when every request of the batch is aborted. */
  areAll(): boolean;
  /** Ends the watch; true when `onAll` was called. */
  end(): boolean;
}

const NEVER: AbortWatch = { areAll: () => false, end: () => false };

/**
 * Calls `onAll` when the last request of the batch is aborted; a request without signal never is. A `passive` watch
 * only answers questions: listening costs more than a short run, and nothing could stop that.
 */
export function watchAborts(
  requests: readonly ExecuteRequest[],
  onAll: () => void,
  { passive = false }: { readonly passive?: boolean } = {},
): AbortWatch {
  if (requests.some(({ signal }) => signal === undefined)) return NEVER;
  const areAll = () => requests.every(({ signal }) => signal?.aborted === true);
  if (passive) return { areAll, end: () => false };
  let isCalled = false;
  const onAbort = () => {
    if (isCalled || !areAll()) return;
    isCalled = true;
    onAll();
  };
  for (const { signal } of requests) signal?.addEventListener("abort", onAbort);
  return {
    areAll,
    end() {
      for (const { signal } of requests) signal?.removeEventListener("abort", onAbort);
      return isCalled;
    },
  };
}
