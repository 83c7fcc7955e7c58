import type { StatusCode } from "../../proto/status.ts";
import type { ModelError } from "./model_api.ts";
import type { ErrorText } from "./worker_protocol.ts";

const CODES: ReadonlySet<string> = new Set<StatusCode>([
  "UNKNOWN",
  "INTERNAL",
  "NOT_FOUND",
  "INVALID_ARG",
  "UNAVAILABLE",
  "UNSUPPORTED",
  "ALREADY_EXISTS",
  "CANCELLED",
]);

/** Folder of the server's own modules, whose frames are no help to who wrote a model. */
const OWN_FOLDER = new URL(".", import.meta.url).href;
const MAX_TEXT_LENGTH = 16_384;
const MAX_CAUSES = 8;
// deno-lint-ignore no-control-regex -- colors that the runtime puts into texts of import errors
const COLORS = /\x1b\[[0-9;]*m/g;
/** The runtime's advice names a flag of the server; a model has what its configuration declares. */
const FLAG_ADVICE = /run again with the --allow-([a-z]+) flag/g;
const MODEL_ADVICE = "the model's config.pbtxt may declare it: parameters, allow_$1";

/** An error with a code, as `ctx.error` gives it. */
export function codedError(code: StatusCode, message: string): ModelError {
  if (!CODES.has(code)) {
    throw new TypeError(
      `No code of errors is called '${code}', there are ${[...CODES].join(", ")}`,
    );
  }
  const error = new Error(message) as Error & { code: StatusCode };
  error.code = code;
  return error;
}

/**
 * What a model threw: its own text when it has a code, else the stack with the frames of the model. Never throws,
 * whatever was thrown: who asks has nothing else to answer with.
 */
export function textOfError(reason: unknown): ErrorText {
  try {
    return describeError(reason);
  } catch {
    const message = "thrown: a value that throws itself when it is looked at";
    return { code: "INTERNAL", message, isGiven: false };
  }
}

function describeError(reason: unknown): ErrorText {
  if (!(reason instanceof Error)) {
    return { code: "INTERNAL", message: clip(`thrown: ${Deno.inspect(reason)}`), isGiven: false };
  }
  const code = (reason as { code?: unknown }).code;
  if (typeof code === "string" && CODES.has(code)) {
    return { code: code as StatusCode, message: clip(String(reason.message)), isGiven: true };
  }
  return { code: "INTERNAL", message: clip(stackOf(reason)), isGiven: false };
}

/** The stack without frames of the server, causes included. */
export function stackOf(error: Error): string {
  const texts: string[] = [];
  // A cause may be the error itself.
  for (let at: unknown = error; at instanceof Error && texts.length < MAX_CAUSES; at = at.cause) {
    texts.push(ownStackOf(at));
  }
  return texts.join("\nCaused by: ");
}

function ownStackOf({ stack, name, message }: Error): string {
  const lines = String(stack || `${name}: ${message}`).replace(COLORS, "")
    .replace(FLAG_ADVICE, MODEL_ADVICE).split("\n");
  return lines.filter((line) => !/^\s+at /.test(line) || isOfModel(line)).join("\n");
}

function isOfModel(line: string): boolean {
  return !line.includes(OWN_FOLDER) && !/\b(ext|node):/.test(line);
}

function clip(text: string): string {
  return text.length <= MAX_TEXT_LENGTH ? text : `${text.slice(0, MAX_TEXT_LENGTH)}…`;
}

/** Where the model called from: the first frame that is not the server's. */
export function callerPlace(stack: string): { file: string; line: number } | undefined {
  for (const line of stack.split("\n").slice(1)) {
    if (!isOfModel(line)) continue;
    const match = /([^/\\(]+):(\d+):\d+\)?$/.exec(line);
    if (match !== null) return { file: match[1]!, line: Number(match[2]) };
  }
  return undefined;
}
