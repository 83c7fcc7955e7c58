import { SchedulerFixture, type SchedulerFixtureOptions } from "./scheduler_fixture.ts";

/** Options of a fixture without its kind of scheduler. */
export type SequenceFixtureOptions = Omit<SchedulerFixtureOptions, "sequences">;
type Sequences = NonNullable<SchedulerFixtureOptions["sequences"]>;
type Strategy = NonNullable<Sequences["strategyChoice"]>;

/** The strategy direct. */
export function direct(value: object = {}): Strategy {
  return { case: "direct", value };
}

/** The strategy oldest. */
export function oldest(value: object = {}): Strategy {
  return { case: "oldest", value };
}

/** A sequence batcher over fake instances. */
export function createFixture(
  strategyChoice: Strategy,
  options: SequenceFixtureOptions = {},
  idleMs = 1000,
) {
  const maxSequenceIdleMicroseconds = BigInt(idleMs * 1000);
  if (strategyChoice.case === "oldest") {
    // What normalisation makes of a configuration without preferred sizes.
    strategyChoice.value.preferredBatchSize ??= [options.maxBatchSize ?? 8];
  }
  return new SchedulerFixture({
    ...options,
    sequences: { maxSequenceIdleMicroseconds, strategyChoice },
  });
}

/** Both strategies, by name. */
export const BOTH = [
  ["direct", direct],
  ["oldest", oldest],
] as const;

/** Ids of the requests of each execution, "" = a null request. */
export function batches(fixture: SchedulerFixture): string[] {
  return fixture.executions.map(({ ids }) => ids.join());
}
