import type { Datatype } from "../../proto/datatype.ts";
import type { ParameterValue } from "../../proto/infer.ts";
import type { FrameWriter } from "./frame_writer.ts";
import type { InferResponse, ModelConfigObject } from "./model_api.ts";
import { textOfError } from "./worker_errors.ts";
import { type ErrorText, OUTCOME } from "./worker_protocol.ts";
import {
  checkShape,
  type ConfiguredOutput,
  type EncodedTensor,
  encodeTensor,
  writeTensors,
} from "./worker_tensors.ts";

/** Whoever passes them on reads each of them: a million hold up everybody else. */
const PARAMETER_COUNT_MAX = 10_000;

/** A response ready to be written into a frame. */
export type EncodedResponse =
  | {
    readonly tensors: readonly EncodedTensor[];
    readonly parameters: Readonly<Record<string, ParameterValue>>;
  }
  | { readonly error: ErrorText };

/** What responses of a model are checked against. */
export interface ResponseRules {
  readonly outputs: ReadonlyMap<string, ConfiguredOutput>;
  readonly isDecoupled: boolean;
  readonly isBatching: boolean;
}

interface ReshapedTensor {
  readonly reshape?: { readonly shape?: readonly number[] };
}

/** The rules that a configuration gives. */
export function responseRules(config: ModelConfigObject): ResponseRules {
  const isBatching = config.max_batch_size > 0;
  const outputs = config.output.map((output): [string, ConfiguredOutput] => {
    const dims = (output as ReshapedTensor).reshape?.shape ?? output.dims;
    const shape = (isBatching ? [-1, ...dims] : [...dims]).map(Number);
    return [output.name, { datatype: datatypeOf(output.data_type), shape }];
  });
  return {
    outputs: new Map(outputs),
    isDecoupled: config.model_transaction_policy?.decoupled === true,
    isBatching,
  };
}

function datatypeOf(configName: string): Datatype | undefined {
  if (configName === "TYPE_INVALID" || !configName.startsWith("TYPE_")) return undefined;
  return (configName === "TYPE_STRING" ? "BYTES" : configName.slice(5)) as Datatype;
}

/** Checks a response of a model and prepares it. A wrong one becomes an error of that request. */
export function encodeResponse(
  response: InferResponse,
  request: { readonly requestedOutputs: readonly string[]; readonly batchSize: number },
  rules: ResponseRules,
): EncodedResponse {
  try {
    if (typeof response !== "object" || response === null) {
      throw new TypeError(
        `Response must be { outputs } or { error }, got ${Deno.inspect(response)}`,
      );
    }
    if (response.error !== undefined) return { error: textOfError(response.error) };
    const { outputs, parameters = {} } = response;
    if (typeof outputs !== "object" || outputs === null) {
      const keys = Object.keys(response).join(", ");
      throw new TypeError(`Response must have outputs or error, got an object with '${keys}'`);
    }
    checkParameters(parameters);
    const tensors: EncodedTensor[] = [];
    for (const name of request.requestedOutputs) {
      if (!Object.hasOwn(outputs, name)) continue;
      tensors.push(encodeOutput(name, outputs[name]!, { rules, batchSize: request.batchSize }));
    }
    return { tensors, parameters };
  } catch (reason) {
    // The stack would show this check only.
    const message = reason instanceof TypeError ? reason.message : textOfError(reason).message;
    return { error: { code: "INTERNAL", message, isGiven: false } };
  }
}

function encodeOutput(
  name: string,
  output: Parameters<typeof encodeTensor>[1],
  { rules, batchSize }: { readonly rules: ResponseRules; readonly batchSize: number },
): EncodedTensor {
  const configured = rules.outputs.get(name);
  const tensor = encodeTensor(name, output, configured);
  if (configured === undefined) return tensor;
  checkShape(tensor, configured);
  if (rules.isBatching && !rules.isDecoupled && tensor.shape[0] !== batchSize) {
    throw new TypeError(
      `Output '${name}' must have ${batchSize} rows like the request, got the shape ` +
        `[${tensor.shape.join(",")}]`,
    );
  }
  return tensor;
}

function checkParameters(parameters: Readonly<Record<string, ParameterValue>>): void {
  const entries = Object.entries(parameters);
  if (entries.length > PARAMETER_COUNT_MAX) {
    throw new TypeError(
      `Expected at most ${PARAMETER_COUNT_MAX} parameters, got ${entries.length}`,
    );
  }
  for (const [key, value] of entries) {
    if (!["boolean", "bigint", "number", "string"].includes(typeof value)) {
      throw new TypeError(
        `Parameter '${key}' must be a boolean, bigint, number or string, got ${
          Deno.inspect(value)
        }`,
      );
    }
    if (typeof value === "bigint" && BigInt.asIntN(64, value) !== value) {
      if (BigInt.asUintN(64, value) === value) continue;
      throw new TypeError(`Parameter '${key}' must fit into 64 bits, got ${value}`);
    }
  }
}

/** Writes a response, its outcome first. */
export function writeResponse(frame: FrameWriter, response: EncodedResponse): void {
  if ("error" in response) {
    const { code, message, isGiven } = response.error;
    frame.u8(OUTCOME.error).text(code).text(message).u8(Number(isGiven));
    return;
  }
  frame.u8(OUTCOME.response).parameters(response.parameters);
  writeTensors(frame, response.tensors);
}
