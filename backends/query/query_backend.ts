import { DataType, type ModelConfig } from "../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../proto/status.ts";
import type { Backend, BackendContext, ExecuteRequest } from "../backend.ts";
import { createConfiguredBackend } from "../configured_backend.ts";
import { ExecutionPace } from "../execution_pace.ts";
import { SYSTEM_TIMERS, type Timers } from "../pause.ts";
import { PacedInstance } from "../paced_instance.ts";
import { answerQuery } from "./answer_query.ts";

const OUTPUTS = ["OUTPUT0", "OUTPUT1"];
const DEFAULT_BYTE_SIZE = 2;
const BYTE_SIZE_MAX = 2 ** 31;

/**
 * The test backend that tells where its outputs would lie: OUTPUT0 and OUTPUT1 of UINT8, zeros. `TEST_BYTE_SIZE`,
 * `TEST_ANONYMOUS` (one question for both, each gets half of the bytes) and `TEST_FAIL_WITH_QUERY_RESULT` (fails with
 * the answer as its text) are read from the environment, or as parameters of the model, which come first. Parameters
 * besides them as in {@linkcode ExecutionPace}.
 */
export function createQueryBackend(
  { now }: BackendContext,
  timers: Timers = SYSTEM_TIMERS,
): Backend {
  return createConfiguredBackend("query", ({ config }) => {
    checkOutputs(config);
    const pace = new ExecutionPace(config, timers);
    const isAnonymous = readSetting(config, "TEST_ANONYMOUS") !== undefined;
    const isFailing = readSetting(config, "TEST_FAIL_WITH_QUERY_RESULT") !== undefined;
    const model = { isAnonymous, isFailing, byteSize: readByteSize(config, isAnonymous) };
    const answer = (request: ExecuteRequest) => answerQuery(request, model);
    return (placement) => new PacedInstance(placement, { pace, now, answer });
  });
}

function checkOutputs(config: ModelConfig): void {
  const faults = OUTPUTS.filter((name) =>
    !config.output.some((each) => each.name === name && each.dataType === DataType.TYPE_UINT8)
  );
  if (faults.length === 0) return;
  throw new ServerError(
    "INVALID_ARG",
    `model '${config.name}' cannot be served by backend 'query': expected outputs OUTPUT0 and ` +
      `OUTPUT1 of TYPE_UINT8, got no ${faults.join(" and no ")}`,
  );
}

function readByteSize(config: ModelConfig, isAnonymous: boolean): number {
  const text = readSetting(config, "TEST_BYTE_SIZE");
  if (text === undefined) return DEFAULT_BYTE_SIZE;
  const byteSize = Number(text);
  if (Number.isSafeInteger(byteSize) && byteSize >= 0 && byteSize <= BYTE_SIZE_MAX) {
    return isAnonymous ? Math.floor(byteSize / 2) : byteSize;
  }
  throw new ServerError(
    "INVALID_ARG",
    `TEST_BYTE_SIZE of model '${config.name}' must be a whole number from 0 to ${BYTE_SIZE_MAX}, ` +
      `got '${text}'`,
  );
}

/** A setting is on when it is there at all, whatever its value. */
function readSetting(config: ModelConfig, key: string): string | undefined {
  return config.parameters[key]?.stringValue ?? readEnvironment(key);
}

function readEnvironment(key: string): string | undefined {
  try {
    return Deno.env.get(key);
  } catch (error) {
    // Without the permission there is no environment.
    if (error instanceof Deno.errors.NotCapable) return undefined;
    throw error;
  }
}
