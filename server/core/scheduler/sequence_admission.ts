import { ServerError } from "../../../proto/status.ts";
import type { Job } from "./job.ts";
import type { SequenceControls } from "./sequence_controls.ts";

/** True for a request without correlation id. */
export function lacksId({ correlationId }: Job): boolean {
  return correlationId === 0n || correlationId === "";
}

/**
 * Checks what a sequence batcher demands of every request (scheduling.md §3.1, http.md §9.8).
 * @throws ServerError INVALID_ARG
 */
export function checkSequenceRequest(
  job: Job,
  model: { readonly name: string; readonly controls: SequenceControls },
): void {
  const { name, controls } = model;
  if (!lacksId(job)) controls.checkId(job);
  if (job.batchSize > 1) {
    throw new ServerError(
      "INVALID_ARG",
      `inference request to model '${name}' must specify batch-size 1 due to requirements of ` +
        `sequence batcher`,
    );
  }
  if (lacksId(job)) {
    throw new ServerError(
      "INVALID_ARG",
      `inference request to model '${name}' must specify a non-zero or non-empty correlation ID`,
    );
  }
}

/** The error of a request whose sequence is not known (any more). */
export function notStartedError(job: Job, model: string): ServerError {
  return new ServerError(
    "INVALID_ARG",
    `inference request for sequence ${job.correlationId} to model '${model}' must specify the ` +
      `START flag on the first request of the sequence`,
  );
}

/** The error of a new sequence for a scheduler that was stopped; running ones go on (scheduling.md §12). */
export function sequenceStoppedError(): ServerError {
  return new ServerError(
    "UNAVAILABLE",
    "Server is stopping, scheduler for model has stopped accepting new inference requests",
  );
}

/** The error of a sequence that waited in the backlog for longer than one of its requests allows. */
export function backlogTimeoutError(): ServerError {
  return new ServerError("UNAVAILABLE", "timeout of the corresponding sequence has been expired");
}
