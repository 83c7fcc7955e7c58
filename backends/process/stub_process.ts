import { ServerError } from "../../proto/status.ts";
import { SYSTEM_TIMERS } from "../pause.ts";

/** How a process is started. */
export interface StubCommand {
  readonly executable: string;
  /** The path of the socket follows them. */
  readonly args: readonly string[];
  /** For the text when it cannot be started: what it is, and what to do then. */
  readonly program: { readonly name: string; readonly advice: string };
  /** Where to listen for it; nothing is there yet. */
  readonly socketPath: string;
  /** All of its environment. */
  readonly environment: Readonly<Record<string, string>>;
  /** For error texts. */
  readonly instanceName: string;
  /** Bound of the time until it is connected. */
  readonly connectTimeoutMs: number;
  /** The first bytes of the connections that it opens, one each. */
  readonly letters: readonly Letter[];
  /** Takes connections of processes that it made (first byte `C`); absent = there are none. */
  readonly onFurtherConnection?: (connection: Deno.UnixConn) => void;
}

type Letter = "A" | "B";
type Channels = Map<Letter, Deno.UnixConn>;

/**
 * A process that runs a model: started in a process group of its own, which ends with it, and connected by one or two
 * sockets.
 */
export class StubProcess {
  /** Settles when it has ended and everything that it started was killed; tells how it ended. */
  readonly ended: Promise<string>;
  readonly #child: Deno.ChildProcess;
  readonly #channels: Channels;

  private constructor(child: Deno.ChildProcess, channels: Channels, ended: Promise<string>) {
    this.#child = child;
    this.#channels = channels;
    this.ended = ended;
  }

  /** Starts it and waits for its connections. @throws ServerError when it does not come so far; it is gone then. */
  static async start(command: StubCommand): Promise<StubProcess> {
    const channels = Promise.withResolvers<Channels>();
    const opened: Channels = new Map();
    const listener = listen(command);
    void acceptAll(listener, { command, opened, onChannels: channels.resolve });
    let child: Deno.ChildProcess;
    try {
      child = spawn(command);
    } catch (error) {
      listener.close();
      throw error;
    }
    const ended = watchEnd(child, listener);
    const { connectTimeoutMs } = command;
    const timer = SYSTEM_TIMERS.setTimer(
      connectTimeoutMs,
      () => channels.reject(startError(command, `no word within ${connectTimeoutMs} ms`)),
    );
    void ended.then((how) => channels.reject(startError(command, how)));
    try {
      return new StubProcess(child, await channels.promise, ended);
    } catch (error) {
      killGroup(child);
      await ended;
      for (const connection of opened.values()) connection.close();
      throw error;
    } finally {
      timer.cancel();
    }
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** The connection with this first byte, which is one of those that the command names. */
  connection(letter: Letter): Deno.UnixConn {
    return this.#channels.get(letter)!;
  }

  /** Ends it at once, with all that it started. */
  kill(): void {
    killGroup(this.#child);
  }

  /** Ends the connections; call it when it has ended. */
  close(): void {
    for (const connection of this.#channels.values()) {
      try {
        connection.close();
      } catch {
        // Closed before.
      }
    }
  }
}

function listen({ socketPath: path, program }: StubCommand): Deno.UnixListener {
  try {
    return Deno.listen({ transport: "unix", path });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const text = `failed to listen for ${program.name} processes at '${path}': ${reason}`;
    throw new ServerError("INTERNAL", text, { cause: error });
  }
}

function spawn(
  { executable, args, socketPath, environment, program }: StubCommand,
): Deno.ChildProcess {
  try {
    return new Deno.Command(executable, {
      args: [...args, socketPath],
      stdin: "null",
      stdout: "inherit",
      stderr: "inherit",
      env: { ...environment },
      clearEnv: true,
      // A group of its own, so that what it starts ends with it.
      detached: true,
    }).spawn();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ServerError(
      "UNAVAILABLE",
      `failed to start ${program.name} '${executable}': ${reason}; ${program.advice}`,
      { cause: error },
    );
  }
}

/** Sorts connections by their first byte until the listener closes. */
async function acceptAll(
  listener: Deno.UnixListener,
  { command: { letters, onFurtherConnection }, opened, onChannels }: {
    readonly command: StubCommand;
    /** Those of the process itself, as they come. */
    readonly opened: Channels;
    readonly onChannels: (channels: Channels) => void;
  },
): Promise<void> {
  const sort = async (connection: Deno.UnixConn) => {
    const first = await firstLetter(connection);
    if (first === "C" && onFurtherConnection !== undefined) return onFurtherConnection(connection);
    const letter = letters.find((each) => each === first && !opened.has(each));
    if (letter === undefined) return connection.close();
    opened.set(letter, connection);
    if (opened.size === letters.length) onChannels(opened);
  };
  try {
    for (;;) void sort(await listener.accept()).catch(() => {});
  } catch {
    // The process has ended.
  }
}

async function firstLetter(connection: Deno.UnixConn): Promise<string> {
  const byte = new Uint8Array(1);
  const count = await connection.read(byte);
  return count === 1 ? String.fromCharCode(byte[0]!) : "";
}

async function watchEnd(child: Deno.ChildProcess, listener: Deno.UnixListener): Promise<string> {
  const { code, signal } = await child.status;
  killGroup(child);
  try {
    listener.close();
  } catch {
    // Its file is gone.
  }
  return signal === null ? `it exited with code ${code}` : `it was ended by ${signal}`;
}

function killGroup({ pid }: Deno.ChildProcess): void {
  try {
    Deno.kill(-pid, "SIGKILL");
  } catch {
    // All of it has ended.
  }
}

function startError({ instanceName }: StubCommand, how: string): ServerError {
  return new ServerError("INTERNAL", `Stub process '${instanceName}' is not healthy: ${how}`);
}
