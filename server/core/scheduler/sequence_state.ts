import type { ExecuteOutcome, ExecuteResponse } from "../../../backends/backend.ts";
import { type Datatype, DATATYPES } from "../../../proto/datatype.ts";
import type {
  ModelConfig,
  ModelSequenceBatching_State,
} from "../../../proto/gen/model_config_pb.ts";
import { ServerError } from "../../../proto/status.ts";
import { formatShape, type Tensor } from "../../../proto/tensor.ts";
import type { TensorRules } from "../tensor_rules.ts";
import { readInitialState } from "./sequence_state_initial.ts";

/** One state of a model: what a sequence gets back as an input in its next request. */
export interface StateRule {
  readonly inputName: string;
  readonly outputName: string;
  readonly datatype: Datatype;
  /** Shape of its values, with the batch dimension of size 1 where the model batches; -1 = any size. */
  readonly dims: readonly number[];
  /** Its value at the start of a sequence, named like the input. Shared by all sequences, written by nobody. */
  readonly initial: Tensor;
}

/** The states of a model, in the order of the configuration. */
export interface StateRules {
  readonly states: readonly StateRule[];
  /** Names of the outputs that carry new values. */
  readonly outputNames: readonly string[];
  /** What a backend must compute for a client that asks for `asked`: these and every state. */
  outputsWith(asked: readonly string[]): readonly string[];
}

/**
 * The states of a model (scheduling.md §3.6), with their initial values read from `<model>/initial_state/`.
 * @returns undefined for a model without states.
 * @throws ServerError when an initial value cannot be read or made.
 */
export async function createStateRules(
  config: ModelConfig,
  modelDirectory: string,
): Promise<StateRules | undefined> {
  if (config.schedulingChoice.case !== "sequenceBatching") return undefined;
  const { state: configured } = config.schedulingChoice.value;
  if (configured.length === 0) return undefined;
  const states: StateRule[] = [];
  for (const state of configured) {
    states.push(await createRule(state, { config, modelDirectory }));
  }
  const outputNames = states.map(({ outputName }) => outputName);
  return {
    states,
    outputNames,
    outputsWith: (asked) => [...asked, ...outputNames.filter((name) => !asked.includes(name))],
  };
}

async function createRule(
  state: ModelSequenceBatching_State,
  { config, modelDirectory }: { readonly config: ModelConfig; readonly modelDirectory: string },
): Promise<StateRule> {
  const { inputName, outputName } = state;
  const isBatching = config.maxBatchSize > 0;
  const initial = await readInitialState(state, { isBatching, name: config.name, modelDirectory });
  if (initial === undefined) {
    throw new ServerError(
      "INVALID_ARG",
      `state '${inputName}' must specify 'data_type' for ${config.name}`,
    );
  }
  const dims = state.dims.map(Number);
  return {
    inputName,
    outputName,
    datatype: initial.datatype,
    dims: isBatching ? [1, ...dims] : dims,
    initial,
  };
}

/** The rules of a model's inputs and states: requests in one batch must agree in the shapes of both. */
export function rulesWithStates(
  rules: TensorRules,
  stateRules: StateRules | undefined,
): TensorRules {
  if (stateRules === undefined) return rules;
  const states = stateRules.states.map(({ inputName, datatype, dims }) => ({
    name: inputName,
    datatype,
    elementSize: 0,
    dims,
    reshape: undefined,
    isOptional: false,
    comparesShape: dims.includes(-1),
    comparesContent: false,
  }));
  return { ...rules, inputs: [...rules.inputs, ...states] };
}

/**
 * The state of the sequence that holds a slot. Values belong to it alone: they are copied once out of the outputs of
 * the model, since those may lie in pooled memory, in the buffer of a whole batch or in the body of the request, and
 * are never written again, since an answer under way may show them.
 */
export class SlotState {
  readonly #rules: StateRules;
  #current: readonly Tensor[];

  constructor(rules: StateRules) {
    this.#rules = rules;
    this.#current = rules.states.map(({ initial }) => initial);
  }

  /** Forgets the values: a new sequence begins (START), or the old one is over. */
  reset(): void {
    this.#current = this.#rules.states.map(({ initial }) => initial);
  }

  /**
   * The values as inputs of the next request. They stay valid and unchanged whatever happens to the slot. A null
   * request may carry those of another slot, so that shapes agree.
   */
  inputs(): readonly Tensor[] {
    return this.#current;
  }

  /**
   * Takes the new values out of what became of a request; a failed request changes none, an output that is not there
   * leaves its state as it is. Call it once per execution, before the next `inputs()`.
   * @param asked outputs that the client wants: state outputs among them stay in what is returned.
   * @returns what the client gets; an error when the model gave a value that cannot be its state.
   */
  take(outcome: ExecuteOutcome, asked: readonly string[]): ExecuteOutcome {
    if ("streamed" in outcome) {
      if (outcome.states === undefined) return outcome;
      const error = this.#update(outcome.states);
      return error === undefined ? outcome : { error };
    }
    if ("error" in outcome) return outcome;
    const error = this.#update(outcome.outputs);
    if (error !== undefined) {
      outcome.release?.();
      return { error };
    }
    return this.#withoutStates(outcome, asked);
  }

  #update(outputs: readonly Tensor[]): ServerError | undefined {
    const { states } = this.#rules;
    const next = [...this.#current];
    for (const output of outputs) {
      const index = this.#rules.outputNames.indexOf(output.name);
      if (index < 0) continue;
      const rule = states[index]!;
      const problem = problemOf(output, rule);
      if (problem !== undefined) {
        return new ServerError("INTERNAL", `state '${rule.inputName}' cannot be ${problem}`);
      }
      const { datatype, shape, data } = output;
      next[index] = { name: rule.inputName, datatype, shape, data: data.slice() };
    }
    this.#current = next;
    return undefined;
  }

  #withoutStates(
    response: Extract<ExecuteResponse, { outputs: unknown }>,
    asked: readonly string[],
  ): ExecuteResponse {
    const names = this.#rules.outputNames;
    const outputs = response.outputs.filter(({ name }) =>
      !names.includes(name) || asked.includes(name)
    );
    return outputs.length === response.outputs.length ? response : { ...response, outputs };
  }
}

/** Why an output cannot be the value of a state, as the end of a sentence. */
function problemOf(output: Tensor, { datatype, dims }: StateRule): string | undefined {
  const { name, shape, data } = output;
  if (output.datatype !== datatype) {
    return `taken from output '${name}': expected datatype ${datatype}, got ${output.datatype}`;
  }
  const fits = shape.length === dims.length &&
    dims.every((dim, index) => dim === -1 || dim === shape[index]);
  if (!fits) {
    return `taken from output '${name}': expected shape ${formatShape(dims)}, got ` +
      formatShape(shape);
  }
  const elementSize = DATATYPES[datatype].byteSize;
  const expected = shape.reduce((size, dim) => size * dim, elementSize);
  if (elementSize === 0 || expected === data.byteLength) return undefined;
  return `taken from output '${name}': expected ${expected} bytes for shape ` +
    `${formatShape(shape)}, got ${data.byteLength}`;
}
