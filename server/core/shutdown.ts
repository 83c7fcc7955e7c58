import type { BackendTable } from "./backend_table.ts";
import type { Clock, Timer } from "./clock.ts";
import type { Log } from "./log.ts";
import type { ModelLifecycle } from "./model_lifecycle.ts";
import type { ModelRegistry } from "./model_registry.ts";

const REPORT_INTERVAL_MS = 1000;

/** What a shutdown works with. */
export interface ShutdownParts {
  readonly registry: ModelRegistry;
  readonly lifecycle: ModelLifecycle;
  readonly backends: BackendTable;
  readonly clock: Clock;
  readonly log: Log;
  readonly timeoutMs: number;
}

/** Drains and frees everything (management.md §11); true when that was done in time. */
export async function shutDown(parts: ShutdownParts): Promise<boolean> {
  const { registry, lifecycle, backends, clock, log, timeoutMs } = parts;
  const endMs = clock.now() + timeoutMs;
  log.info("Waiting for in-flight requests to complete.");
  const isDrained = await waitUntil(drain(registry), clock, endMs, (restSecs) => {
    const busy = registry.entries()
      .flatMap((entry) => entry.loaded())
      .filter(({ inflightCount }) => inflightCount > 0);
    log.info(
      `Timeout ${restSecs}: Found ${busy.length} model versions that have in-flight inferences`,
    );
    for (const { config, versionText, inflightCount } of busy) {
      log.info(
        `Model '${config.name}' (version ${versionText}) has ${inflightCount} in-flight inferences`,
      );
    }
  });
  if (!isDrained) return false;
  log.info("All models are stopped, unloading models");
  const freed = lifecycle.unloadAll().then(() => backends[Symbol.asyncDispose]());
  return await waitUntil(freed, clock, endMs, (restSecs) => {
    const live = registry.entries().flatMap((entry) => entry.loaded()).length;
    log.info(
      `Timeout ${restSecs}: Found ${live} live models and 0 in-flight non-inference requests`,
    );
  });
}

/** Until nothing is in flight at all: models may call each other as long as they have something to do. */
async function drain(registry: ModelRegistry): Promise<void> {
  for (;;) {
    const models = registry.entries().flatMap((entry) => entry.loaded());
    await Promise.all(models.map((model) => model.stop({ finishesSequences: true })));
    if (models.every(({ inflightCount }) => inflightCount === 0)) return;
  }
}

/** Waits for `work`, reporting once per second; false when time is over first, or the work failed. */
function waitUntil(
  work: Promise<unknown>,
  clock: Clock,
  endMs: number,
  report: (restSecs: number) => void,
): Promise<boolean> {
  return new Promise((resolve) => {
    let timer: Timer;
    const finish = (isDone: boolean) => {
      timer.cancel();
      resolve(isDone);
    };
    const tick = () => {
      const restMs = endMs - clock.now();
      report(Math.max(0, Math.ceil(restMs / 1000)));
      if (restMs <= 0) return finish(false);
      timer = clock.setTimer(Math.min(REPORT_INTERVAL_MS, restMs), tick);
    };
    timer = clock.setTimer(0, tick);
    work.then(() => finish(true), () => finish(false));
  });
}
