import { createHash } from "node:crypto";
import { pathToFileURL } from "node:url";
import { ServerError } from "../../proto/status.ts";
import type { BatchStrategy } from "./batch_strategy_api.ts";
import type { BatchStrategyFile } from "./batch_strategy_file.ts";
import type { Clock } from "./clock.ts";
import { readBoundedFile } from "./model_repository_files.ts";

/** A strategy is a page of code. */
const SOURCE_BYTES_MAX = 1024 * 1024;
/** Code at the top of a module may wait for something that never comes. */
const IMPORT_TIMEOUT_MS = 10_000;
const CALLS = ["initialize", "start", "includeRequest", "finish", "finalize"] as const;
// deno-lint-ignore no-control-regex
const COLORS = /\u001b\[[0-9;]*m/g;

/** The module of a strategy, and how errors out of it are told. */
export interface StrategyModule {
  readonly strategy: BatchStrategy;
  /** The text of something thrown, with its place in the strategy's file. */
  explain(reason: unknown): string;
}

/**
 * Imports and checks the module of a strategy. A file that was changed is a module of its own; one that was not, is the
 * one imported before.
 * @throws ServerError with the place in the file: syntax, imports, missing exports, async functions.
 */
export async function importStrategy(
  file: BatchStrategyFile,
  clock: Clock,
): Promise<StrategyModule> {
  const { path, name } = file;
  const bytes = await readBoundedFile({ path, name, root: path }, SOURCE_BYTES_MAX);
  if (bytes === undefined) throw new ServerError("NOT_FOUND", `${name} is not there any more`);
  const { mtime } = await Deno.stat(path);
  const hash = createHash("sha256").update(bytes).update(String(mtime?.getTime())).digest("hex");
  const url = `${pathToFileURL(path).href}?${hash.slice(0, 24)}`;
  const explain = (reason: unknown) => explainError(reason, url, name);
  let loaded: Record<string, unknown>;
  try {
    loaded = await withinTime(import(url), clock);
  } catch (reason) {
    throw failure(explain(reason), reason);
  }
  checkExports(loaded, { name, text: new TextDecoder().decode(bytes) });
  return { strategy: loaded as unknown as BatchStrategy, explain };
}

function checkExports(
  loaded: Record<string, unknown>,
  { name, text }: { readonly name: string; readonly text: string },
): void {
  const at = (word: string) => `${name}:${placeOf(word, text)}`;
  for (const call of CALLS) {
    const value = loaded[call];
    if (value === undefined && call !== "includeRequest") continue;
    if (value === undefined) {
      throw failure(`it must export a function includeRequest(request, batch) at ${at(call)}`);
    }
    if (typeof value !== "function") {
      throw failure(`${call} must be a function, got ${typeof value} at ${at(call)}`);
    }
    if (/^(?:Async|Generator)/.test(value.constructor.name)) {
      throw failure(
        `${call} must return at once, it must be neither async nor a generator at ${at(call)}`,
      );
    }
  }
}

/** Line and column of a function of that name, as well as it can be told without parsing. */
function placeOf(word: string, text: string): string {
  const definition = new RegExp(`(?:function\\s*\\*?|const|let|var|as)\\s+(${word})\\b`, "d");
  const index = definition.exec(text)?.indices?.[1]?.[0] ?? Math.max(0, text.indexOf(word));
  const before = text.slice(0, index).split("\n");
  return `${before.length}:${before.at(-1)!.length + 1}`;
}

/** What was thrown, the strategy's file by the name that clients know, and no other folders of this machine. */
function explainError(reason: unknown, url: string, name: string): string {
  const error = reason instanceof Error ? reason : undefined;
  const message = (error?.message ?? String(reason)).replace(COLORS, "");
  const head = error === undefined || error.name === "Error" || message.startsWith("SyntaxError:")
    ? message
    : `${error.name}: ${message}`;
  const folder = url.slice(0, url.lastIndexOf("/") + 1);
  const shorten = (text: string) =>
    text.replaceAll(url, name).replaceAll(folder, name.slice(0, name.lastIndexOf("/") + 1))
      .replace(/file:\/\/\/\S*\//g, "");
  const shown = shorten(head);
  if (shown.includes(`${name}:`)) return shown;
  const frame = (error?.stack ?? "").split("\n").find((line) => line.includes(url));
  const place = frame === undefined ? undefined : /:(\d+:\d+)\)?$/.exec(frame.trim())?.[1];
  return place === undefined ? shown : `${shown} at ${name}:${place}`;
}

async function withinTime<Value>(promise: Promise<Value>, clock: Clock): Promise<Value> {
  const expired = Promise.withResolvers<never>();
  const timer = clock.setTimer(IMPORT_TIMEOUT_MS, () => {
    expired.reject(new Error(`it is not loaded after ${IMPORT_TIMEOUT_MS / 1000} s`));
  });
  // While a module waits for nothing that can come, Deno would end the program instead of the load.
  const wakeful = setInterval(() => {}, IMPORT_TIMEOUT_MS);
  // Whichever of them comes second may fail without anybody waiting for it.
  promise.catch(() => {});
  try {
    return await Promise.race([promise, expired.promise]);
  } finally {
    timer.cancel();
    clearInterval(wakeful);
  }
}

function failure(message: string, cause?: unknown): ServerError {
  return new ServerError("INVALID_ARG", message, { cause });
}
