import type { ExecuteRequest } from "../backend.ts";

/** Watches the signals of a batch. */
export interface AbortWatch {
  /** True when every request of the batch is aborted. */
  areAll(): boolean;
  /** Ends the watch; true when `onAll` was called. */
  end(): boolean;
}

const NEVER: AbortWatch = { areAll: () => false, end: () => false };

/** Calls `onAll` when the last request of the batch is aborted; a request without signal never is. */
export function watchAborts(requests: readonly ExecuteRequest[], onAll: () => void): AbortWatch {
  if (requests.some(({ signal }) => signal === undefined)) return NEVER;
  let isCalled = false;
  const areAll = () => requests.every(({ signal }) => signal?.aborted === true);
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
