import { isGenerated, isTest, projectPath } from "./project_path.ts";

/** What the files of one folder may import, besides that folder itself. */
interface Layer {
  readonly folder: RegExp;
  readonly may: readonly RegExp[];
}

const PROTO = /^proto\/(?!client\/)/;
const BACKEND_CONTRACTS = /^backends\/(?!registry)[^/]+\.ts$/;
const PROCESS_LINK = /^backends\/process\//;
const ONNX_TYPES = /^ffi\/onnxruntime\/(element_type|signature)\.ts$/;
/** The types of models in TypeScript. */
const MODEL_API = /^backends\/typescript\/model_api\.ts$/;
/** The types of batching strategies. */
const BATCH_STRATEGY_API = /^server\/core\/batch_strategy_api\.ts$/;
const AGENT_CONTRACT = /^server\/core\/(repository_agent|load_slots|log)\.ts$/;
const CORE_FACADE = /^server\/core\/(inference_api|options|clock|log|statistics|metrics)\w*\.ts$/;

// The first entry that matches a file is its layer; the order of the table is the order of imports.
const LAYERS: readonly Layer[] = [
  { folder: /^proto\/client\//, may: [PROTO] },
  { folder: /^proto\//, may: [] },
  { folder: /^ffi\//, may: [] },
  { folder: /^backends\/(registry|worker\/entry)\.ts$/, may: [PROTO, /^backends\//] },
  { folder: /^backends\/(device|shared_memory)\.ts$/, may: [PROTO, /^ffi\//, BACKEND_CONTRACTS] },
  // What all backends for ONNX share knows the runtime's numbers of types, no calls.
  { folder: /^backends\/onnx_\w+\.ts$/, may: [PROTO, ONNX_TYPES, BACKEND_CONTRACTS] },
  { folder: BACKEND_CONTRACTS, may: [PROTO, BACKEND_CONTRACTS] },
  // What backends share whose models run in other processes.
  { folder: PROCESS_LINK, may: [PROTO, /^ffi\//, BACKEND_CONTRACTS] },
  { folder: /^backends\/[^/]+\//, may: [PROTO, /^ffi\//, BACKEND_CONTRACTS, PROCESS_LINK] },
  { folder: /^server\/core\//, may: [PROTO, /^backends\/backend\.ts$/] },
  { folder: /^server\/transport\//, may: [] },
  {
    folder: /^server\/(http|grpc|metrics)\//,
    may: [PROTO, /^server\/transport\//, CORE_FACADE],
  },
  // Agents run user code in processes of their own: a place beside the frontends that knows the core's contract only.
  { folder: /^server\/agents\//, may: [PROTO, AGENT_CONTRACT] },
  { folder: /^server\/dashboard\//, may: [] },
  { folder: /^server\/perf\//, may: [/^proto\//] },
  { folder: /^server\/cli\//, may: [/^(proto|ffi|backends|server)\//] },
  {
    folder: /^mod\.ts$/,
    may: [PROTO, /^server\/cli\//, CORE_FACADE, MODEL_API, BATCH_STRATEGY_API],
  },
  // An agent is written against the types of the server's agents, and imports nothing else.
  {
    folder: /^examples\/repository_agents\//,
    may: [/^server\/agents\/agent_api\.ts$/],
  },
  { folder: /^examples\//, may: [/^mod\.ts$/, /^proto\/client\//, MODEL_API] },
];

/** Why `from` must not import `to` (both paths inside the project); undefined when it may. */
export function layerViolation(from: string, to: string): string | undefined {
  if (isTest(from)) return undefined;
  const layer = LAYERS.find((candidate) => candidate.folder.test(from));
  if (layer === undefined) return undefined;
  const target = LAYERS.find((candidate) => candidate.folder.test(to));
  const own = layer.folder.exec(from)![0];
  if (target === layer && to.startsWith(own)) return undefined;
  if (layer.may.some((allowed) => allowed.test(to))) return undefined;
  return `${from} must not import ${to}: imports point down (README, folder map)`;
}

type ModuleReference =
  | Deno.lint.ImportDeclaration
  | Deno.lint.ExportNamedDeclaration
  | Deno.lint.ExportAllDeclaration;

/** Imports follow the strict order of the layers. */
export const layerRule: Deno.lint.Rule = {
  create(context) {
    const from = projectPath(context.filename);
    if (isGenerated(from)) return {};
    const check = (node: Deno.lint.Node, source: unknown): void => {
      if (typeof source !== "string" || !source.startsWith(".")) return;
      const to = new URL(source, `file:///${from}`).pathname.slice(1);
      const message = layerViolation(from, to);
      if (message !== undefined) context.report({ node, message });
    };
    const statement = (node: ModuleReference): void => check(node, node.source?.value);
    return {
      ImportDeclaration: statement,
      ExportNamedDeclaration: statement,
      ExportAllDeclaration: statement,
      ImportExpression(node) {
        if (node.source.type === "Literal") check(node, node.source.value);
      },
    };
  },
};
