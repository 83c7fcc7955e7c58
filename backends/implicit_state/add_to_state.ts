import { ServerError } from "../../proto/status.ts";
import type { ExecuteRequest, ExecuteResponse } from "../backend.ts";
import { filledIntegers, findInput, readFirstInteger } from "../integer_tensor.ts";

interface ImplicitStateModel {
  readonly name: string;
  readonly hasStates: boolean;
}

const TEST_CASE = { MISSING_STATE: 0, NO_UPDATE: 1, SINGLE_BUFFER: 2, GROWABLE_MEMORY: 3 } as const;

/** Adds the input to the state. @throws ServerError for a test case that asks for what there is not. */
export function addToState(request: ExecuteRequest, model: ImplicitStateModel): ExecuteResponse {
  const testCase = readFirstInteger(findInput(request, "TEST_CASE"));
  checkTestCase(testCase, model);
  const input = findInput(request, "INPUT");
  const sum = readFirstInteger(input) + readFirstInteger(findInput(request, "INPUT_STATE"));
  const names = testCase === TEST_CASE.NO_UPDATE ? ["OUTPUT"] : ["OUTPUT", "OUTPUT_STATE"];
  const made = names.filter((name) => request.outputs.includes(name));
  return { outputs: made.map((name) => filledIntegers(name, input.shape, sum)) };
}

function checkTestCase(testCase: number, { name, hasStates }: ImplicitStateModel): void {
  if (testCase === TEST_CASE.MISSING_STATE) {
    const state = "undefined_state";
    throw new ServerError(
      "INVALID_ARG",
      hasStates
        ? `state '${state}' is not a valid state name.`
        : `unable to add state '${state}'. State configuration is missing for model '${name}'.`,
    );
  }
  if (testCase === TEST_CASE.GROWABLE_MEMORY) {
    throw new ServerError("UNSUPPORTED", "growable memory should always provide memory in GPU");
  }
  if (testCase === TEST_CASE.NO_UPDATE || testCase === TEST_CASE.SINGLE_BUFFER) return;
  throw new ServerError("INVALID_ARG", `expected TEST_CASE to be 0, 1, 2 or 3, got ${testCase}`);
}
