import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { ExecuteRequest } from "../backend.ts";
import { readCountParameter } from "../model_parameters.ts";

/** More of them no trace could hold. */
const MAX_NESTED_SPANS = 1000;

/** Activities that a model notes in the traces of its requests. */
export interface CustomActivities {
  /** `CUSTOM_ACTIVITY0`, `CUSTOM_ACTIVITY1`, …, each within the one before. */
  readonly nestedCount: number;
  /** Every so many of those hold a `CUSTOM_SINGLE_ACTIVITY`, from the first on; 0 = none. */
  readonly singleFrequency: number;
}

/**
 * Reads `enable_custom_tracing` ("true" or "1"), `nested_span_count` and `single_activity_frequency` of a
 * configuration; undefined when nothing is to be noted.
 * @throws ServerError INVALID_ARG naming a parameter that is no whole number.
 */
export function readCustomActivities(config: ModelConfig): CustomActivities | undefined {
  const nestedCount = readCountParameter(config, "nested_span_count");
  const singleFrequency = readCountParameter(config, "single_activity_frequency");
  const switched = config.parameters["enable_custom_tracing"]?.stringValue ?? "";
  if (!/^(true|1)$/i.test(switched)) return undefined;
  return { nestedCount: Math.min(nestedCount, MAX_NESTED_SPANS), singleFrequency };
}

/** Notes the activities of one execution, from `startMs` until now, for those of its requests that are traced. */
export function noteActivities(
  requests: readonly ExecuteRequest[],
  { nestedCount, singleFrequency }: CustomActivities,
  startMs: number,
): void {
  for (const { trace } of requests) {
    if (trace === undefined) continue;
    trace.mark("CUSTOM_ACTIVITY_START", startMs);
    trace.mark("CUSTOM_ACTIVITY_END");
    trace.mark("CUSTOM_SINGLE_ACTIVITY");
    for (let index = 0; index < nestedCount; index++) {
      trace.mark(`CUSTOM_ACTIVITY${index}_START`);
      const isSingle = singleFrequency > 0 && index % singleFrequency === 0;
      if (isSingle) trace.mark("CUSTOM_SINGLE_ACTIVITY");
    }
    for (let index = nestedCount - 1; index >= 0; index--) {
      trace.mark(`CUSTOM_ACTIVITY${index}_END`);
    }
  }
}
