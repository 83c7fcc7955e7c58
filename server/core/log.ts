import type { LogPlace } from "../../backends/backend.ts";

/** What the server says about itself. `place`: the user's code that said it, in place of the server's own. */
export interface Log {
  info(message: string, place?: LogPlace): void;
  warning(message: string, place?: LogPlace): void;
  error(message: string, place?: LogPlace): void;
  /** Written when the verbose level is at least `level` (1 or more). */
  verbose(level: number, message: string, place?: LogPlace): void;
  /** Whether lines of this level are written now: for what is dear to put into words. Absent = never. */
  isVerbose?(level: number): boolean;
}

/** A log whose lines name the module that wrote them. */
export interface ServerLog extends Log {
  module(name: string): Log;
}

/** `--log-…` of cli.md §2.1. What a log was created with may change while it is used. */
export interface LogSettings {
  readonly info: boolean;
  readonly warning: boolean;
  readonly error: boolean;
  readonly verboseLevel: number;
  readonly format: "default" | "ISO8601";
}

/** Everything on, nothing verbose. */
export const DEFAULT_LOG_SETTINGS: LogSettings = {
  info: true,
  warning: true,
  error: true,
  verboseLevel: 0,
  format: "default",
};

/** Where lines go. `isProblem`: a warning or an error. */
export type LogSink = (line: string, isProblem: boolean) => void;

/** What a log works with. */
export interface LogOptions {
  readonly settings: LogSettings;
  readonly sink: LogSink;
  /** Wall-clock ms since 1970. */
  readonly wallNow: () => number;
  readonly pid: number;
  /** Messages as JSON strings in quotes; false with `TRITON_SERVER_ESCAPE_LOG_MESSAGES=0`. */
  readonly escapesMessages: boolean;
}

const PLACE_LENGTH_MAX = 200;

type Letter = "I" | "W" | "E";

/** A log in one of the two formats of observability.md §6. */
export function createLog(options: LogOptions): ServerLog {
  const { settings } = options;
  const write = (letter: Letter, place: string, message: string) => {
    const head = settings.format === "default"
      ? formatDefaultHead(letter, options.wallNow(), options.pid)
      : formatIsoHead(letter, options.wallNow(), options.pid);
    const text = replaceControls(options.escapesMessages ? JSON.stringify(message) : message);
    options.sink(`${head} ${place}] ${text}\n`, letter !== "I");
  };
  const at = (own: string): Log => {
    const placed = (place: LogPlace | undefined) => place === undefined ? own : formatPlace(place);
    return {
      info: (message, place) => settings.info && write("I", placed(place), message),
      warning: (message, place) => settings.warning && write("W", placed(place), message),
      error: (message, place) => settings.error && write("E", placed(place), message),
      verbose: (level, message, place) =>
        settings.verboseLevel >= level && write("I", placed(place), message),
      isVerbose: (level) => settings.verboseLevel >= level,
    };
  };
  return { ...at("server:0"), module: (name) => at(`${name}:0`) };
}

/** The log of one module, where the log can tell modules apart. */
export function moduleLog(log: Log, name: string): Log {
  return "module" in log ? (log as ServerLog).module(name) : log;
}

/** A name that a user's code gives itself: it may be anything. */
function formatPlace({ file, line }: LogPlace): string {
  return `${replaceControls(file.replaceAll("\n", " ")).slice(-PLACE_LENGTH_MAX)}:${
    Math.trunc(line)
  }`;
}

function pad(value: number, width: number): string {
  return String(value).padStart(width, "0");
}

function formatDefaultHead(letter: Letter, wallMs: number, pid: number): string {
  const date = new Date(wallMs);
  const micros = Math.floor((wallMs - Math.floor(wallMs)) * 1000) +
    date.getUTCMilliseconds() * 1000;
  return `${letter}${pad(date.getUTCMonth() + 1, 2)}${pad(date.getUTCDate(), 2)} ` +
    `${pad(date.getUTCHours(), 2)}:${pad(date.getUTCMinutes(), 2)}:` +
    `${pad(date.getUTCSeconds(), 2)}.${pad(micros, 6)} ${pid}`;
}

function formatIsoHead(letter: Letter, wallMs: number, pid: number): string {
  return `${new Date(wallMs).toISOString().slice(0, 19)}Z ${letter} ${pid}`;
}

/** A message must not be able to forge a line of its own or to steer a terminal. */
function replaceControls(message: string): string {
  return message.replace(/\p{Cc}/gu, (char) => {
    if (char === "\n") return "\n  ";
    return `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

/** Lines to stdout, problems to stderr; a line that cannot be written is dropped. */
export function createConsoleSink(): LogSink {
  const encoder = new TextEncoder();
  return (line, isProblem) =>
    writeFully(isProblem ? Deno.stderr : Deno.stdout, encoder.encode(line));
}

/** Appends lines to a file. @throws what opening the file throws. */
export function openFileSink(path: string): LogSink & Disposable {
  const encoder = new TextEncoder();
  const file = Deno.openSync(path, { append: true, create: true, write: true });
  const sink = (line: string) => writeFully(file, encoder.encode(line));
  let isOpen = true;
  const close = () => {
    if (isOpen) file.close();
    isOpen = false;
  };
  return Object.assign(sink, { [Symbol.dispose]: close });
}

function writeFully(
  writer: { writeSync(bytes: Uint8Array): number },
  bytes: Uint8Array,
): void {
  let rest = bytes;
  try {
    while (rest.length > 0) rest = rest.subarray(writer.writeSync(rest));
  } catch {
    // Nobody reads the log any more, or its disk is full: the server goes on without the line.
  }
}
