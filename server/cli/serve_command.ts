import { exitAtOnce } from "../../ffi/posix/exit_at_once.ts";
import { emptyStandardInput } from "../../ffi/posix/standard_input.ts";
import { ServerError, STATUS_TEXT } from "../../proto/status.ts";
import type { StartResult } from "../core/inference_server.ts";
import type { ServerLog } from "../core/log.ts";
import { type OpenedLog, openLog } from "./open_log.ts";
import { printText } from "./print.ts";
import { createProgram, type Program } from "./program.ts";
import type { ServeOptions } from "./serve_options.ts";
import { watchProcess } from "./signals.ts";
import {
  adviceOnModels,
  formatNoModels,
  formatOptions,
  formatStartReport,
  modelRows,
  serviceRows,
} from "./start_report.ts";

/** What the caller of {@linkcode serve} wants to know. */
export interface ServeCallbacks {
  /** The server is up, its start report printed. */
  readonly onReady?: (program: Program) => void;
}

/** Starts a server, keeps it up until a signal comes, ends it; returns the exit code. */
export async function serve(
  options: ServeOptions,
  notes: readonly string[],
  callbacks: ServeCallbacks = {},
): Promise<number> {
  let log: OpenedLog;
  try {
    log = openLog(options.log);
  } catch (reason) {
    return refuse(new ServerError("INVALID_ARG", `cannot open --log-file: ${reason}`));
  }
  using _log = log;
  using events = watchProcess({
    onSignal: (name, number) => {
      log.info(`Signal (${number}) received.`);
      log.verbose(1, `${name}: waiting for requests in flight; Ctrl-C ends at once`);
    },
    // Service managers repeat SIGTERM, which speeds nothing up (management.md §11); a user who insists is heard.
    onFurtherSignal: (name, number) => {
      if (name !== "SIGTERM") {
        exitAtOnce(1);
        Deno.exit(1);
      }
      log.info(`Signal (${number}) received.`);
    },
    onUncaught: (reason) => log.error(`uncaught error: ${describe(reason)}`),
  });
  for (const note of notes) log.warning(note);
  askNobody(log);
  let program: Program;
  try {
    program = createProgram(options, log);
  } catch (reason) {
    return refuse(ServerError.from(reason));
  }
  const stopped = events.firstSignal.then(() => "signal" as const);
  const starting = start(program, options, log);
  // A signal during the start does not wait for models that are still being loaded.
  const started = await Promise.race([starting, stopped]);
  if (started === "signal") return await stop(program, options, log);
  if (started.fault !== undefined) {
    // The reason comes last, where it is seen.
    await program.stop(0);
    return refuse(started.fault, started.advice);
  }
  report(program, options, started.result);
  callbacks.onReady?.(program);
  await stopped;
  return await stop(program, options, log);
}

/**
 * Models in TypeScript have fewer permissions than the server. When one does what it may not, the runtime would ask
 * whoever sits at the terminal, and the model would wait for that; without a terminal it is refused at once.
 */
function askNobody(log: ServerLog): void {
  if (!Deno.stdin.isTerminal()) return;
  const mayCall = Deno.permissions.querySync({ name: "ffi" }).state === "granted";
  if (mayCall && emptyStandardInput()) return;
  log.verbose(1, "what models may not do is asked for at the terminal: start with --no-prompt");
}

interface Started {
  readonly result: StartResult;
  /** Why the process must end. */
  readonly fault?: ServerError;
  /** What to do about it. */
  readonly advice?: string;
}

async function start(program: Program, options: ServeOptions, log: ServerLog): Promise<Started> {
  const result = await program.load();
  if (result.error !== undefined) {
    if (options.server.exitOnError) {
      printModels(result);
      return { result, fault: result.error, advice: adviceOnModels(result) };
    }
    log.error(result.error.toReason());
  }
  try {
    await program.listen();
  } catch (reason) {
    return { result, fault: ServerError.from(reason) };
  }
  return { result };
}

async function stop(program: Program, options: ServeOptions, log: ServerLog): Promise<number> {
  const isClean = await program.stop(options.server.exitTimeoutSecs * 1000);
  if (!isClean) log.error("Exit timeout expired. Exiting immediately.");
  return isClean ? 0 : 1;
}

function report(program: Program, options: ServeOptions, result: StartResult): void {
  if (!options.log.info) return;
  const text = result.models.length === 0
    ? formatStartReport(serviceRows(program.services), [], formatNoModels(options.server))
    : formatStartReport(serviceRows(program.services), modelRows(result.models));
  printText(`${formatOptions(options)}\n${text}`);
}

function printModels(result: StartResult): void {
  if (result.models.length > 0) printText(formatStartReport([], modelRows(result.models)));
}

/** The text for what stops a start, in the reference's form; returns the exit code. */
function refuse(problem: ServerError, advice = ""): number {
  const text = `error: creating server: ${STATUS_TEXT[problem.code]} - ${problem.message}\n`;
  const more = advice === "" ? "" : `${advice}\n`;
  printText(text + more, "stderr");
  return 1;
}

function describe(reason: unknown): string {
  return reason instanceof Error ? reason.stack ?? reason.message : String(reason);
}
