import { SchedulerFixture } from "./scheduler_fixture.ts";
import { testScheduler } from "./scheduler_suite.ts";

// The text of a refused sequence names no request (scheduling.md §3.1).
const TEXTS = { stopPrefix: "" };

testScheduler(
  "SequenceBatcher (direct)",
  (options = {}) => new SchedulerFixture({ sequences: {}, ...options }),
  TEXTS,
);

testScheduler(
  "SequenceBatcher (oldest)",
  (options = {}) =>
    new SchedulerFixture({
      sequences: {
        strategyChoice: {
          case: "oldest",
          value: { preferredBatchSize: [options.maxBatchSize ?? 8] },
        },
      },
      ...options,
    }),
  TEXTS,
);

testScheduler(
  "SequenceBatcher (iterative)",
  (options = {}) =>
    new SchedulerFixture({
      sequences: {
        iterativeSequence: true,
        strategyChoice: { case: "oldest", value: { maxCandidateSequences: 3 } },
      },
      ...options,
    }),
  TEXTS,
);
