import { isGenerated, isTest, projectPath } from "./project_path.ts";

const BANNED_FILE_WORDS =
  /(^|_)(utils?|helpers?|common|misc|managers?|handlers?|base|impl|data|info)(_|\.)/;
const BANNED_TYPE_WORDS =
  /(Utils?|Helpers?|Common|Misc|Managers?|Base|Impl|Info)(?=[A-Z]|$)|^I[A-Z][a-z]|^Abstract[A-Z]/;
// A real HTTP handler may be called one.
const ALLOWED_TYPES = /^(Http|Rpc)Handler$|^I(nfer|nput|nstance|ndex|nteger|d)/;
const ERROR_CLASSES = /^(ServerError|TypeError|RangeError|Error)$/;

const bannedNames: Deno.lint.Rule = {
  create(context) {
    const path = projectPath(context.filename);
    if (isGenerated(path)) return {};
    const checkType = (node: Deno.lint.Node, name: string | undefined): void => {
      if (name === undefined || ALLOWED_TYPES.test(name)) return;
      const word = BANNED_TYPE_WORDS.exec(name)?.[0];
      if (word === undefined) return;
      context.report({ node, message: `type name ${name} contains the banned word ${word}` });
    };
    return {
      "Program:exit"(node: Deno.lint.Program) {
        const file = path.split("/").at(-1)!;
        const word = BANNED_FILE_WORDS.exec(file)?.[2];
        if (word === undefined) return;
        context.report({ node, message: `file name ${file} contains the banned word ${word}` });
      },
      ClassDeclaration: (node) => checkType(node, node.id?.name),
      TSInterfaceDeclaration: (node) => checkType(node, node.id.name),
      TSTypeAliasDeclaration: (node) => checkType(node, node.id.name),
    };
  },
};

/** What users write: the server takes the default export of `model.ts`. */
const USER_FILES = /^(examples|tests)\/.*\/model\.ts$/;

const noDefaultExport: Deno.lint.Rule = {
  create(context) {
    const path = projectPath(context.filename);
    if (isGenerated(path) || USER_FILES.test(path)) return {};
    return {
      ExportDefaultDeclaration(node) {
        context.report({ node, message: "Default exports are not used: name what is exported" });
      },
    };
  },
};

/** Why a text is no good error message; undefined when it is. */
export function messageFault(text: string): string | undefined {
  if (/[^.]\.$/.test(text)) return "must not end with a full stop";
  if (/^[a-z]+ /.test(text)) return "must begin with a capital letter";
  if (/\b(can't|couldn't|don't|isn't|won't|doesn't|it's)\b/i.test(text)) {
    return "must not contain contractions";
  }
  return undefined;
}

// Only programmer mistakes are judged: the texts for clients are those of the reference server.
const errorMessage: Deno.lint.Rule = {
  create(context) {
    const path = projectPath(context.filename);
    if (isGenerated(path) || isTest(path)) return {};
    return {
      NewExpression(node) {
        if (node.callee.type !== "Identifier" || !ERROR_CLASSES.test(node.callee.name)) return;
        if (node.callee.name === "ServerError") return;
        const text = node.arguments[0];
        if (text?.type !== "Literal" || typeof text.value !== "string") return;
        const fault = messageFault(text.value);
        if (fault !== undefined) context.report({ node, message: `Error message ${fault}` });
      },
    };
  },
};

/** Rules about names and texts. */
export const wordRules: Record<string, Deno.lint.Rule> = {
  "banned-names": bannedNames,
  "no-default-export": noDefaultExport,
  "error-message": errorMessage,
};
