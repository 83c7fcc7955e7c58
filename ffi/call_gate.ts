/**
 * Bounds the nonblocking native calls in flight. They occupy the runtime's blocking pool (32 threads per isolate),
 * which file and name lookups need as well.
 */
export interface CallGate {
  /** Calls that hold a permit now. */
  readonly inFlight: number;
  /** Takes a permit; undefined when one was free, else a promise that settles when it is this caller's turn. */
  enter(): Promise<void> | undefined;
  /** Gives the permit back; the longest waiting caller gets it. */
  leave(): void;
}

/** A gate with `limit` permits, served in order of arrival. */
export function createCallGate(limit: number): CallGate {
  if (!Number.isInteger(limit) || limit < 1) {
    throw new RangeError(
      `Cannot create a call gate with limit ${limit}: expected a positive integer`,
    );
  }
  const waiting: (() => void)[] = [];
  let inFlight = 0;
  return {
    get inFlight() {
      return inFlight;
    },
    enter() {
      if (inFlight < limit) {
        inFlight++;
        return undefined;
      }
      return new Promise<void>((resolve) => waiting.push(resolve));
    },
    leave() {
      const next = waiting.shift();
      if (next !== undefined) next();
      else inFlight--;
    },
  };
}
