import type { ServerError } from "../proto/status.ts";
import type { Tensor } from "../proto/tensor.ts";
import type { ExecuteRequest, ExecuteResponse } from "./backend.ts";
import { executeRequest } from "./execute_request_fixture.ts";
import { readIntegers } from "./integer_tensor.ts";

/** What was sent and when: the first integer of each output, the error, or nothing but the final flag. */
export interface SentResponse {
  readonly atMs: number;
  readonly values?: readonly (number | undefined)[];
  readonly error?: ServerError;
  readonly isFinal: boolean;
}

/** A request that takes any number of responses and notes them. */
export function streamedRequest(
  given: Pick<ExecuteRequest, "inputs" | "outputs"> & Partial<ExecuteRequest>,
  { now, hold }: {
    readonly now: () => number;
    /** What `send` returns, as a slow receiver would. */
    readonly hold?: () => Promise<void> | undefined;
  },
): { readonly request: ExecuteRequest; readonly sent: SentResponse[] } {
  const sent: SentResponse[] = [];
  const send = (response: ExecuteResponse | undefined, isFinal: boolean) => {
    if (sent.some((each) => each.isFinal)) throw new TypeError("Final response was sent already");
    sent.push({ atMs: now(), ...describe(response), isFinal });
    return hold?.();
  };
  return { request: executeRequest({ ...given, send }), sent };
}

function describe(response: ExecuteResponse | undefined) {
  if (response === undefined) return {};
  if ("error" in response) return { error: response.error };
  return { values: response.outputs.map((output: Tensor) => readIntegers(output)[0]) };
}
