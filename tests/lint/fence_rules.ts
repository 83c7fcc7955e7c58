import { isGenerated, isTest, projectPath } from "./project_path.ts";

/** Members of `Deno` and modules that only some folders may use. */
interface Fence {
  readonly members: RegExp;
  readonly modules: RegExp;
  /** Where they may be used. */
  readonly inside: RegExp;
  readonly what: string;
}

const FENCES: Readonly<Record<string, Fence>> = {
  "ffi-fence": {
    members: /^(dlopen|Unsafe\w*)$/,
    modules: /^$/,
    inside: /^ffi\//,
    what: "Native code stays in ffi/",
  },
  "listener-fence": {
    members: /^(listen|listenTls|serve)$/,
    modules: /^node:(http|https|http2|net|tls)$/,
    // A process of a model finds its server by a unix socket in a private folder.
    inside: /^(server\/(transport|metrics)\/|backends\/process\/stub_process\.ts$)/,
    what: "Listeners stay in server/transport and server/metrics",
  },
};

function createFenceRule(fence: Fence): Deno.lint.Rule {
  return {
    create(context) {
      const path = projectPath(context.filename);
      if (isGenerated(path) || isTest(path) || fence.inside.test(path)) return {};
      return {
        MemberExpression(node) {
          if (node.object.type !== "Identifier" || node.object.name !== "Deno") return;
          if (node.property.type !== "Identifier" || !fence.members.test(node.property.name)) {
            return;
          }
          const message = `${fence.what}: Deno.${node.property.name} is used in ${path}`;
          context.report({ node, message });
        },
        ImportDeclaration(node) {
          if (node.importKind === "type" || !fence.modules.test(node.source.value)) return;
          const message = `${fence.what}: ${node.source.value} is imported in ${path}`;
          context.report({ node, message });
        },
      };
    },
  };
}

const PROGRAMS = /^(tests|scripts|examples)\//;

// What the server says goes through its log, whose level and place the user chooses.
const consoleFence: Deno.lint.Rule = {
  create(context) {
    const path = projectPath(context.filename);
    if (isGenerated(path) || PROGRAMS.test(path)) return {};
    return {
      MemberExpression(node) {
        if (node.object.type !== "Identifier" || node.object.name !== "console") return;
        context.report({ node, message: `console is used in ${path}: write to the log instead` });
      },
    };
  },
};

/** What only some folders may touch. */
export const fenceRules: Record<string, Deno.lint.Rule> = {
  ...Object.fromEntries(
    Object.entries(FENCES).map(([name, fence]) => [name, createFenceRule(fence)]),
  ),
  "console-fence": consoleFence,
};
