import type { Tensor } from "../../../proto/tensor.ts";
import type { Job } from "./job.ts";
import { JobList } from "./job_list.ts";
import type { SequenceLane } from "./sequence_lane.ts";
import type { SlotState } from "./sequence_state.ts";

/**
 * One sequence from its START until it is forgotten: the list of its requests that wait, in their order of arrival, and
 * what belongs to it alone. Two sequences that have the same correlation id one after the other are two objects, and the
 * state is part of the object, so that it cannot reach another one, whoever gets the slot next.
 */
export class Sequence extends JobList {
  readonly id: bigint | string;
  /** Takes no more requests: END came, a request was cancelled, it idled out, or it waited too long. */
  isClosed = false;
  /** The instance that serves it; undefined while it waits in the backlog. */
  lane: SequenceLane | undefined;
  /** Its slot there, and how often the slot had been given away when it got it. */
  slot = -1;
  generation = -1;
  /**
   * The sequences of the same id that began before and after it, while they are not over: models that tell sequences by
   * their id must never have two of them.
   */
  predecessor: Sequence | undefined;
  successor: Sequence | undefined;
  /** Its request that was handed on: waiting for a batch (oldest), or running. */
  handedOn: Job | undefined;
  /**
   * Its START failed: the next request has to begin the sequence in its place, or a model that keeps sums itself would
   * go on with those of the slot's last owner.
   */
  mustStart = false;
  /** Its first waiting request, when that has its control tensors and states already. */
  prepared: Job | undefined;
  /** What the client sent and asked for in the request that was prepared last. */
  sentInputs: readonly Tensor[] = [];
  askedOutputs: readonly string[] = [];
  /** Values of the implicit state; undefined while it has no slot, or for a model without. */
  state: SlotState | undefined;
  /** The tensor with its id, made once. */
  idTensor: Tensor | undefined;
  /** Since when it has had nothing to do, ms. */
  idleSinceMs = 0;

  constructor(id: bigint | string) {
    super();
    this.id = id;
  }
}
