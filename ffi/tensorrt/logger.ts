import type { MachineCode } from "../machine_code.ts";
import { addressOf, addressOfPointer, cString } from "../memory.ts";

const F_SETFL = 4;
const O_NONBLOCK = 2048;
const READ_BYTE_SIZE = 64 * 1024;
const MAX_KEPT_LINES = 200;

const LIBC_SYMBOLS = {
  // int pipe(int files[2])
  pipe: { parameters: ["buffer"], result: "i32" },
  // int fcntl(int file, int command, int argument)
  fcntl: { parameters: ["i32", "i32", "i32"], result: "i32" },
  // ssize_t read(int file, void* buffer, size_t size)
  read: { parameters: ["i32", "buffer", "usize"], result: "isize" },
  // int dprintf(int file, const char* format, …)
  dprintf: { type: "pointer" },
} as const satisfies Deno.ForeignLibraryInterface;

/** `ILogger::Severity`. */
export type LogSeverity = "internal error" | "error" | "warning" | "info" | "verbose";

const SEVERITIES: readonly LogSeverity[] = [
  "internal error",
  "error",
  "warning",
  "info",
  "verbose",
];

/** A line TensorRT wrote to its log. */
export interface LogLine {
  readonly severity: LogSeverity;
  readonly text: string;
}

/**
 * An `ILogger` that any thread may call and that never calls JavaScript: it writes to a pipe, which {@linkcode since}
 * empties. When nobody does, further lines are dropped and the engine does not wait.
 */
export class NativeLogger {
  readonly #symbols: Deno.StaticForeignLibraryInterface<typeof LIBC_SYMBOLS>;
  readonly #object: BigUint64Array<ArrayBuffer>;
  /** Reached by native code only. */
  readonly #kept: readonly object[];
  readonly #readEnd: number;
  readonly #decoder = new TextDecoder();
  readonly #block = new Uint8Array(new ArrayBuffer(READ_BYTE_SIZE));
  readonly #lines: LogLine[] = [];
  #droppedCount = 0;
  #rest = "";

  /** @throws Error when the system has no pipe left. */
  constructor(code: MachineCode, { versionsLogger }: { readonly versionsLogger: boolean }) {
    this.#symbols = Deno.dlopen("libc.so.6", LIBC_SYMBOLS).symbols;
    const files = new Int32Array(new ArrayBuffer(8));
    if (this.#symbols.pipe(files) !== 0) throw new Error("Cannot make a pipe for TensorRT's log");
    const [readEnd, writeEnd] = [files[0]!, files[1]!];
    for (const file of [readEnd, writeEnd]) this.#symbols.fcntl(file, F_SETFL, O_NONBLOCK);
    this.#readEnd = readEnd;
    const format = cString("%d %s\n");
    const kind = cString("ILogger");
    const methods = versionsLogger
      ? [code.zero, code.loggerKind, code.zero, code.zero, code.log]
      : [code.log, code.zero, code.zero];
    const table = pinnedCells(methods);
    this.#object = pinnedCells([
      addressOf(table),
      BigInt(writeEnd),
      addressOf(format),
      addressOfPointer(this.#symbols.dprintf),
      addressOf(kind),
    ]);
    this.#kept = [table, format, kind];
  }

  /** Address of the `ILogger`. It must outlive every runtime that was made with it. */
  get address(): bigint {
    return this.#kept.length === 0 ? 0n : addressOf(this.#object);
  }

  /** Number of lines that were read so far. */
  get position(): number {
    return this.#droppedCount + this.#lines.length;
  }

  /**
   * Reads what was written and returns the lines from a position on, as far as they are kept: the last
   * {@linkcode MAX_KEPT_LINES}. Several may read at once; each has positions of its own.
   */
  since(position: number): LogLine[] {
    this.#read();
    return this.#lines.slice(Math.max(position - this.#droppedCount, 0));
  }

  /** The position behind all that was written until now. */
  mark(): number {
    this.#read();
    return this.position;
  }

  #read(): void {
    for (;;) {
      const block = this.#block;
      const size = Number(this.#symbols.read(this.#readEnd, block, BigInt(block.length)));
      if (size <= 0) break;
      const texts = (this.#rest + this.#decoder.decode(block.slice(0, size), { stream: true }))
        .split("\n");
      this.#rest = texts.pop() ?? "";
      for (const text of texts) addLine(this.#lines, text);
    }
    const excess = this.#lines.length - MAX_KEPT_LINES;
    if (excess <= 0) return;
    this.#lines.splice(0, excess);
    this.#droppedCount += excess;
  }
}

function addLine(lines: LogLine[], text: string): void {
  const severity = /^\d /.test(text) ? SEVERITIES[Number(text[0])] : undefined;
  const last = lines.at(-1);
  if (severity !== undefined) lines.push({ severity, text: text.slice(2).trimEnd() });
  // A message of more lines than one goes on.
  else if (last !== undefined) lines[lines.length - 1] = { ...last, text: `${last.text}\n${text}` };
}

/** Cells in a block that does not move. */
function pinnedCells(values: readonly bigint[]): BigUint64Array<ArrayBuffer> {
  const cells = new BigUint64Array(new ArrayBuffer(8 * values.length));
  cells.set(values);
  return cells;
}
