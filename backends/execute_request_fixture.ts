import type { ExecuteRequest } from "./backend.ts";

/** A request as a scheduler would hand it to an instance, with what a test gives; it can only be answered at once. */
export function executeRequest(
  given: Pick<ExecuteRequest, "inputs" | "outputs"> & Partial<ExecuteRequest>,
): ExecuteRequest {
  return {
    id: "",
    correlationId: 0n,
    batchSize: 1,
    parameters: {},
    sequenceStart: false,
    sequenceEnd: false,
    priority: 0,
    timeoutUs: 0,
    signal: undefined,
    send: () => {
      throw new TypeError("This request takes no streamed responses");
    },
    ...given,
  };
}
