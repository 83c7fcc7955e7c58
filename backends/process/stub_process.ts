import { ServerError } from "../../proto/status.ts";

/** How a process is started. */
export interface StubCommand {
  readonly executable: string;
  readonly stubPath: string;
  /** Where to listen for it; nothing is there yet. */
  readonly socketPath: string;
  /** All of its environment. */
  readonly environment: Readonly<Record<string, string>>;
  /** For error texts. */
  readonly instanceName: string;
  /** Bound of the time until it is connected. */
  readonly connectTimeoutMs: number;
  /** Takes connections of processes that it made (first byte `C`). */
  readonly onFurtherConnection: (connection: Deno.UnixConn) => void;
}

interface Channels {
  a: Deno.UnixConn;
  b: Deno.UnixConn;
}

/**
 * A process that runs a Python model: started in a process group of its own, which ends with it, and connected by two
 * sockets.
 */
export class StubProcess {
  readonly a: Deno.UnixConn;
  readonly b: Deno.UnixConn;
  /** Settles when it has ended and everything that it started was killed; tells how it ended. */
  readonly ended: Promise<string>;
  readonly #child: Deno.ChildProcess;

  private constructor(child: Deno.ChildProcess, { a, b }: Channels, ended: Promise<string>) {
    this.#child = child;
    this.a = a;
    this.b = b;
    this.ended = ended;
  }

  /** Starts it and waits for its connections. @throws ServerError when it does not come so far; it is gone then. */
  static async start(command: StubCommand): Promise<StubProcess> {
    const channels = Promise.withResolvers<Channels>();
    const opened: Partial<Channels> = {};
    const listener = listen(command.socketPath);
    void acceptAll(listener, {
      opened,
      onChannels: channels.resolve,
      onFurther: command.onFurtherConnection,
    });
    let child: Deno.ChildProcess;
    try {
      child = spawn(command);
    } catch (error) {
      listener.close();
      throw error;
    }
    const ended = watchEnd(child, listener);
    const timer = setTimeout(
      () => channels.reject(startError(command, `no word within ${command.connectTimeoutMs} ms`)),
      command.connectTimeoutMs,
    );
    void ended.then((how) => channels.reject(startError(command, how)));
    try {
      return new StubProcess(child, await channels.promise, ended);
    } catch (error) {
      killGroup(child);
      await ended;
      opened.a?.close();
      opened.b?.close();
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  get pid(): number {
    return this.#child.pid;
  }

  /** Ends it at once, with all that it started. */
  kill(): void {
    killGroup(this.#child);
  }

  /** Ends the connections; call it when it has ended. */
  close(): void {
    for (const connection of [this.a, this.b]) {
      try {
        connection.close();
      } catch {
        // Closed before.
      }
    }
  }
}

function listen(path: string): Deno.UnixListener {
  try {
    return Deno.listen({ transport: "unix", path });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const text = `failed to listen for Python processes at '${path}': ${reason}`;
    throw new ServerError("INTERNAL", text, { cause: error });
  }
}

function spawn({ executable, stubPath, socketPath, environment }: StubCommand): Deno.ChildProcess {
  try {
    return new Deno.Command(executable, {
      args: ["-u", stubPath, socketPath],
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
      `failed to start Python '${executable}': ${reason}; name one with ` +
        `--backend-config=python,python-executable=PATH`,
      { cause: error },
    );
  }
}

/** Sorts connections by their first byte until the listener closes. */
async function acceptAll(
  listener: Deno.UnixListener,
  { opened, onChannels, onFurther }: {
    /** Those of the process itself, as they come. */
    readonly opened: Partial<Channels>;
    readonly onChannels: (channels: Channels) => void;
    readonly onFurther: (connection: Deno.UnixConn) => void;
  },
): Promise<void> {
  const sort = async (connection: Deno.UnixConn) => {
    const letter = await firstLetter(connection);
    if (letter === "A" && opened.a === undefined) opened.a = connection;
    else if (letter === "B" && opened.b === undefined) opened.b = connection;
    else if (letter === "C") return onFurther(connection);
    else return connection.close();
    const { a, b } = opened;
    if (a !== undefined && b !== undefined) onChannels({ a, b });
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
