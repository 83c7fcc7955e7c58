import { DATATYPES } from "../../../proto/datatype.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import type { BatchComparison } from "./batch_compare.ts";
import { Job } from "./job.ts";
import type { SequenceHost, SequenceStrategy } from "./sequence_lane.ts";
import type { SequenceRules } from "./sequence_rules.ts";
import type { SequenceSlots } from "./sequence_slots.ts";

/** What the strategy works with. */
export interface DirectStrategyParts {
  readonly host: SequenceHost;
  readonly rules: SequenceRules;
  readonly slots: SequenceSlots;
  readonly mayShare: BatchComparison | undefined;
  /** What a place without a request gets instead of a control tensor, by name. */
  readonly nullTensors: ReadonlyMap<string, Tensor>;
}

/** A BYTES element is at least its length. */
const LENGTH_BYTES = 4;

/**
 * The strategy *direct* (scheduling.md §3.4): the place of a sequence in the batch is its slot, for its whole life;
 * places in between that have nothing to do, or something of another shape, get a null request.
 */
export class DirectStrategy implements SequenceStrategy {
  readonly #parts: DirectStrategyParts;
  /** The last slot with something to do, as `dueMs` found it. */
  #lastReady = -1;

  constructor(parts: DirectStrategyParts) {
    this.#parts = parts;
  }

  offer(): void {
    // Slots are looked at when a batch is formed.
  }

  dueMs(nowMs: number): number {
    const { rules, host, slots } = this.#parts;
    const { owners } = slots;
    let readyCount = 0;
    let lastReady = -1;
    let oldestMs = Infinity;
    for (let slot = 0; slot < owners.length; slot++) {
      const head = owners[slot]?.first;
      if (head === undefined) continue;
      readyCount++;
      lastReady = slot;
      oldestMs = Math.min(oldestMs, head.queueStartMs);
    }
    this.#lastReady = lastReady;
    if (readyCount === 0) return Infinity;
    const { maxQueueDelayMs } = rules.batch;
    const { minimumSlotUtilization, slotCount } = rules;
    if (maxQueueDelayMs === 0 || minimumSlotUtilization === 0 || host.isStopped) return nowMs;
    const isUsed = readyCount / slotCount >= minimumSlotUtilization;
    return isUsed ? nowMs : oldestMs + maxQueueDelayMs;
  }

  take(): Job[] {
    const { host, mayShare, slots } = this.#parts;
    const { owners } = slots;
    const lastReady = this.#lastReady;
    const heads: (Job | undefined)[] = [];
    let template: Job | undefined;
    for (let slot = 0; slot <= lastReady; slot++) {
      const sequence = owners[slot];
      let head = sequence?.first === undefined ? undefined : host.prepare(sequence);
      template ??= head;
      if (head !== undefined && head !== template && mayShare?.(template!, head) === false) {
        head = undefined;
      }
      if (head !== undefined) {
        sequence!.remove(head);
        sequence!.handedOn = head;
      }
      heads.push(head);
    }
    let nullInputs: readonly Tensor[] | undefined;
    return heads.map((head) => {
      if (head !== undefined) return head;
      nullInputs ??= template!.inputs.map((input) => this.#nullInput(input));
      return createNullJob(nullInputs, template!);
    });
  }

  #nullInput({ name, datatype, shape }: Tensor): Tensor {
    const control = this.#parts.nullTensors.get(name);
    if (control !== undefined) return control;
    const size = DATATYPES[datatype].byteSize || LENGTH_BYTES;
    const elements = shape.reduce((product, dim) => product * dim, 1);
    return { name, datatype, shape, data: new Uint8Array(elements * size) };
  }
}

/** A request of nobody; what the model answers is thrown away. */
function createNullJob(inputs: readonly Tensor[], template: Job): Job {
  const job = new Job({
    id: "",
    correlationId: 0n,
    batchSize: 1,
    inputs,
    outputs: template.outputs,
    parameters: {},
    signal: undefined,
    priority: 0,
    timeoutUs: 0,
    startMs: template.startMs,
    onDone: () => {},
    onResponse: (response) => {
      if (response !== undefined && "release" in response) response.release?.();
      return undefined;
    },
  });
  job.isNull = true;
  return job;
}
