import { waitUntil } from "../delay.ts";

const PROJECT = new URL("../../", import.meta.url).pathname;
const START_LIMIT_MS = 60_000;
const STOP_LIMIT_MS = 40_000;

/** A server of this project in a process of its own. */
export interface ServerProcess extends AsyncDisposable {
  readonly httpPort: number;
  readonly grpcPort: number;
  /** Everything it wrote so far. */
  log(): Promise<string>;
}

/** The command that starts the server of this working tree. */
export function serverCommand(): readonly string[] {
  return [Deno.execPath(), "run", "-A", `${PROJECT}mod.ts`];
}

/** Starts the server at three ports from `port` on and waits until it is live. */
export async function startServer(
  flags: readonly string[],
  port: number,
): Promise<ServerProcess> {
  const logFile = await Deno.makeTempFile({ prefix: "conformance-", suffix: ".log" });
  const [command, ...args] = serverCommand();
  const ports = [`--http-port=${port}`, `--grpc-port=${port + 1}`, `--metrics-port=${port + 2}`];
  // Through a shell, since a child's output goes to a file only from there; exec hands signals on.
  const child = new Deno.Command("sh", {
    args: ["-c", 'log=$1; shift; exec "$@" >"$log" 2>&1', "sh", logFile, command!, ...args]
      .concat(ports, flags),
    stdin: "null",
  }).spawn();
  let exit: Deno.CommandStatus | undefined;
  child.status.then((status) => exit = status);
  const log = (): Promise<string> => Deno.readTextFile(logFile);
  const stop = async (): Promise<void> => {
    if (exit === undefined) child.kill("SIGTERM");
    await waitUntil(() => exit !== undefined, STOP_LIMIT_MS);
    if (exit === undefined) child.kill("SIGKILL");
    await child.status;
    await Deno.remove(logFile);
  };
  await waitUntil(async () => exit !== undefined || await isLive(port), START_LIMIT_MS, 50);
  if (exit !== undefined || !await isLive(port)) {
    const text = await log();
    await stop();
    throw new Error(`Server does not start with ${flags.join(" ")}:\n${text}`);
  }
  return { httpPort: port, grpcPort: port + 1, log, [Symbol.asyncDispose]: stop };
}

async function isLive(port: number): Promise<boolean> {
  try {
    const response = await fetch(`http://localhost:${port}/v2/health/live`);
    await response.body?.cancel();
    return response.status === 200;
  } catch {
    return false;
  }
}
