import type { ModelConfig } from "../../proto/gen/model_config_pb.ts";
import type { TfGraph } from "../../ffi/tensorflow/mod.ts";
import type { GraphSignature, SignatureTensor } from "./saved_model.ts";

const INPUT_TYPE = "Placeholder";
/** Operations that end in nothing without being a result. */
const NO_RESULT = new Set([INPUT_TYPE, "Const", "NoOp", "Assert"]);

/**
 * Signature of a graph without one: the tensors that the configuration names, by `operation` or `operation:index`;
 * where it lists none, or one that is not there, all placeholders, and all results that nothing in the graph uses.
 */
export function signatureOfGraph(
  graph: TfGraph,
  config: ModelConfig,
): Pick<GraphSignature, "inputs" | "outputs"> {
  const operations = [...graph.operations()];
  const inputs = operations.filter(({ type }) => type === INPUT_TYPE).map(({ name }) => name);
  const outputs = operations
    .filter((each) => !NO_RESULT.has(each.type) && graph.isEnd(each))
    .flatMap((each) =>
      Array.from(
        { length: graph.outputCount(each) },
        (_, index) => index === 0 ? each.name : `${each.name}:${index}`,
      )
    );
  return {
    inputs: select(graph, inputNames(config), { found: inputs, isListed: config.input.length > 0 }),
    outputs: select(graph, outputNames(config), {
      found: outputs,
      isListed: config.output.length > 0,
    }),
  };
}

function select(
  graph: TfGraph,
  wanted: readonly string[],
  { found, isListed }: { readonly found: readonly string[]; readonly isListed: boolean },
): SignatureTensor[] {
  const known = wanted.filter((name) => graph.port(name) !== undefined);
  const isWhole = isListed && known.length === wanted.length;
  const names = new Set(isWhole ? known : [...found, ...known]);
  return [...names].map((name) => {
    const port = graph.port(name)!;
    return { name, tensorName: name, dataType: port.dataType, dims: graph.dims(port) };
  });
}

function inputNames(config: ModelConfig): string[] {
  const names = config.input.map(({ name }) => name);
  names.push(...config.batchInput.flatMap(({ targetName }) => targetName));
  if (config.schedulingChoice.case === "sequenceBatching") {
    const { controlInput, state } = config.schedulingChoice.value;
    names.push(...controlInput.map(({ name }) => name), ...state.map((each) => each.inputName));
  }
  return names;
}

function outputNames(config: ModelConfig): string[] {
  const names = config.output.map(({ name }) => name);
  if (config.schedulingChoice.case === "sequenceBatching") {
    names.push(...config.schedulingChoice.value.state.map(({ outputName }) => outputName));
  }
  return names;
}
