import type { ExecuteResponse } from "../../../backends/backend.ts";
import type { ParameterValue } from "../../../proto/infer.ts";
import type { Tensor } from "../../../proto/tensor.ts";
import type { Job } from "../scheduler/job.ts";
import { convertTensor, type TensorReader } from "./ensemble_shape.ts";
import { type EnsembleValue, mergeSequence, type SequenceOverride } from "./ensemble_values.ts";

/** What the ensemble says about each of its outputs, by name. */
export type EnsembleOutputs = ReadonlyMap<string, TensorReader>;

/** One requested output; the response has a share of its buffers. */
export interface TakenOutput {
  readonly name: string;
  readonly value: EnsembleValue;
}

/**
 * The response that is made of the values of all requested outputs; absent ones are left out. The sequence of the
 * request, or what steps made of it, goes along as parameters.
 */
export function createEnsembleResponse(
  taken: readonly TakenOutput[],
  readers: EnsembleOutputs,
  job: Job,
): ExecuteResponse {
  const outputs: Tensor[] = [];
  let sequence = sequenceOf(job);
  for (const { name, value } of taken) {
    sequence = mergeSequence(sequence, value.sequence);
    if (value.tensor === undefined) continue;
    outputs.push(convertTensor(value.tensor, value.isBatched, readers.get(name)!));
  }
  const release = () => {
    for (const { value } of taken) value.buffers?.release();
  };
  if (sequence === undefined) return { outputs, release };
  return { outputs, parameters: sequenceParameters(sequence), release };
}

function sequenceOf(job: Job): SequenceOverride | undefined {
  const { correlationId, sequenceStart, sequenceEnd } = job;
  if (correlationId === 0n || correlationId === "") return undefined;
  return { correlationId, sequenceStart, sequenceEnd };
}

function sequenceParameters(sequence: SequenceOverride): Record<string, ParameterValue> {
  const { correlationId, sequenceStart, sequenceEnd } = sequence;
  return {
    ...(correlationId === undefined ? {} : { sequence_id: correlationId }),
    ...(sequenceStart === undefined ? {} : { sequence_start: sequenceStart }),
    ...(sequenceEnd === undefined ? {} : { sequence_end: sequenceEnd }),
  };
}
