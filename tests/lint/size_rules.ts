import { isGenerated, isTest, projectPath } from "./project_path.ts";

const MAX_FILE_LINES = 400;
const MAX_FUNCTION_LINES = 70;

function lineCount(text: string): number {
  return text.replace(/\n$/, "").split("\n").length;
}

/** Plain tables (`*_table*.ts`) may be as long as what they list. */
function isTable(path: string): boolean {
  return /_table\w*\.ts$/.test(path);
}

/** Length of files and functions. */
export const sizeRules: Record<string, Deno.lint.Rule> = {
  "file-length": {
    create(context) {
      const path = projectPath(context.filename);
      if (isGenerated(path) || isTable(path)) return {};
      return {
        "Program:exit"(node: Deno.lint.Program) {
          const lines = lineCount(context.sourceCode.text);
          if (lines <= MAX_FILE_LINES) return;
          const message = `${path} has ${lines} lines, at most ${MAX_FILE_LINES} are allowed`;
          context.report({ node, message });
        },
      };
    },
  },
  "function-length": {
    create(context) {
      const path = projectPath(context.filename);
      if (isGenerated(path) || isTest(path)) return {};
      const check = (node: Deno.lint.Node): void => {
        const lines = lineCount(context.sourceCode.text.slice(...node.range));
        if (lines <= MAX_FUNCTION_LINES) return;
        const message = `function has ${lines} lines, at most ${MAX_FUNCTION_LINES} are allowed`;
        context.report({ node, message });
      };
      return {
        FunctionDeclaration: check,
        FunctionExpression: check,
        ArrowFunctionExpression: check,
      };
    },
  },
};
