import { createHash } from "node:crypto";
import type { ParameterValue } from "../../proto/infer.ts";
import type { Tensor } from "../../proto/tensor.ts";

/** What of a request decides its answer, as far as the server can know. */
export interface KeyedRequest {
  /** In the order of the configuration. */
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly string[];
  readonly parameters: Readonly<Record<string, ParameterValue>>;
}

/**
 * The key under which the answer to a request is kept: a SHA-256 digest in hex, so that equal keys mean equal requests
 * even where clients choose their inputs with malice, without keeping the inputs for a comparison (scheduling.md §7).
 * It covers the load of the model version, every input's name, datatype, shape and bytes, the outputs asked for, and
 * the custom parameters, which a model may look at. Id, priority and timeout of a request tell how it is handled, not
 * what is asked: they are left out.
 */
export function requestKey(request: KeyedRequest, partitionId: number): string {
  const { inputs, outputs, parameters } = request;
  const head = JSON.stringify([
    partitionId,
    outputs,
    describeParameters(parameters),
    inputs.map(({ name, datatype, shape, data }) => [name, datatype, shape, data.byteLength]),
  ]);
  // The head tells every length, and JSON its own end: no two requests give the same bytes.
  const hash = createHash("sha256").update(head);
  for (const { data } of inputs) hash.update(data);
  return hash.digest("hex");
}

function describeParameters(parameters: KeyedRequest["parameters"]): readonly string[][] {
  const names = Object.keys(parameters);
  if (names.length > 1) names.sort();
  return names.map((name) => {
    const value = parameters[name]!;
    return [name, typeof value, Object.is(value, -0) ? "-0" : String(value)];
  });
}
