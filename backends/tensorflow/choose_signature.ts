import { configError } from "../../proto/model_config.ts";
import type { GraphSignature, MetaGraph } from "./saved_model.ts";

const DEFAULT_SIGNATURE = "serving_default";
const DEFAULT_TAG = "serve";
/** Signatures by which TensorFlow marks steps of its own. */
const OWN_SIGNATURES = new Set(["__saved_model_init_op", "__saved_model_train_op"]);

/** The parameters that choose. */
export const TAG_KEY = "TF_GRAPH_TAG";
export const SIGNATURE_KEY = "TF_SIGNATURE_DEF";

/** What of a SavedModel is served. */
export interface SignatureChoice {
  readonly graph: MetaGraph;
  readonly signature: GraphSignature;
  /** Set when neither the configuration nor the usual name chose it. */
  readonly isGuess: boolean;
}

/** What the configuration asks for; "" = it does not. */
export interface SignatureWish {
  readonly tag: string;
  readonly signature: string;
}

const LISTED_NAMES_MAX = 32;

/**
 * Finds the graph and its signature: those of the parameters, else tag `serve` and `serving_default`, or the only
 * signature there is.
 * @throws ServerError INVALID_ARG listing what there is.
 */
export function chooseSignature(
  graphs: readonly MetaGraph[],
  wish: SignatureWish,
  modelName: string,
): SignatureChoice {
  const graph = chooseGraph(graphs, wish.tag, modelName);
  const names = [...graph.signatures.keys()].filter((name) => !OWN_SIGNATURES.has(name)).sort();
  const wanted = wish.signature || DEFAULT_SIGNATURE;
  const signature = graph.signatures.get(wanted);
  if (signature !== undefined) return { graph, signature, isGuess: false };
  if (wish.signature === "" && names.length === 1) {
    return { graph, signature: graph.signatures.get(names[0]!)!, isGuess: true };
  }
  const list = names.length === 0 ? "none" : shortList(names.map((name) => `'${name}'`), ", ");
  const hint = names.length === 0
    ? "export it with signatures: tf.saved_model.save(module, folder, signatures=module.call.get_concrete_function(…))"
    : `parameters { key: "${SIGNATURE_KEY}" value { string_value: "${names[0]}" } } chooses one`;
  throw configError([{
    path: wish.signature === "" ? "" : `parameters.${SIGNATURE_KEY}`,
    message: `unable to load model '${modelName}', the SavedModel has no signature '${wanted}'; ` +
      `signatures of the graph with tags ${formatTags(graph)}: ${list}`,
    hint,
  }]);
}

function chooseGraph(graphs: readonly MetaGraph[], tag: string, modelName: string): MetaGraph {
  const wanted = parseTags(tag || DEFAULT_TAG);
  const found = graphs.find(({ tags }) =>
    tags.length === wanted.length && wanted.every((each) => tags.includes(each))
  );
  if (found !== undefined) return found;
  throw configError([{
    path: tag === "" ? "" : `parameters.${TAG_KEY}`,
    message: `unable to load model '${modelName}', the SavedModel has no graph with ` +
      `tag '${wanted.join(",")}'; graphs have the tags ${shortList(graphs.map(formatTags), "; ")}`,
    hint: `parameters { key: "${TAG_KEY}" value { string_value: ` +
      `"${shortList(graphs[0]?.tags ?? [], ",")}" } } chooses one`,
  }]);
}

function parseTags(text: string): string[] {
  return text.split(",").map((each) => each.trim()).filter((each) => each !== "");
}

function formatTags({ tags }: MetaGraph): string {
  return tags.length === 0 ? "(none)" : `'${shortList(tags, ",")}'`;
}

/** A file may hold a hundred thousand names; whoever looks for one is helped by a few. */
function shortList(names: readonly string[], separator: string): string {
  const shown = names.slice(0, LISTED_NAMES_MAX).join(separator);
  const rest = names.length - LISTED_NAMES_MAX;
  return rest > 0 ? `${shown} and ${rest} more` : shown;
}
