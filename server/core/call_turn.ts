import { ServerError } from "../../proto/status.ts";
import type { Clock } from "./clock.ts";

/** How long a load or unload that a model asked for waits until it begins. */
const TURN_TIMEOUT_MS = 30_000;

/**
 * Runs an operation that a model asked for. It may never come to its turn, when that model is itself what is loaded or
 * unloaded just then; so the wait is bounded. `run` calls `begin` when it is its turn, and does nothing on `false`.
 * @throws ServerError UNAVAILABLE when the wait was too long.
 */
export function runInTurn(
  name: string,
  clock: Clock,
  run: (begin: () => boolean) => Promise<void>,
): Promise<void> {
  let isGivenUp = false;
  const { promise, reject } = Promise.withResolvers<void>();
  const timer = clock.setTimer(TURN_TIMEOUT_MS, () => {
    isGivenUp = true;
    reject(
      new ServerError(
        "UNAVAILABLE",
        `model '${name}' cannot be loaded or unloaded now: what happens to it, or to an ensemble ` +
          `with it, has not ended within ${
            TURN_TIMEOUT_MS / 1000
          } s (a model that is being loaded ` +
          `cannot load or unload itself)`,
      ),
    );
  });
  const begin = () => {
    timer.cancel();
    return !isGivenUp;
  };
  return Promise.race([promise, run(begin).finally(() => timer.cancel())]);
}
