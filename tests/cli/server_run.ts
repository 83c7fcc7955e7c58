import { waitUntil } from "../delay.ts";

const PROJECT = new URL("../../", import.meta.url).pathname;

/** A run of the server with what it wrote. */
export interface ServerRun extends AsyncDisposable {
  readonly pid: number;
  /** Standard output so far. */
  stdout(): string;
  stderr(): string;
  /** Exit code, once it ended; undefined after `limitMs`. */
  exitCode(limitMs?: number): Promise<number | undefined>;
  kill(signal: Deno.Signal): void;
  /** Waits for the start report; the address of a service, such as `HTTP`. */
  address(service: string): Promise<string>;
}

/** Runs `mod.ts` with a command line; ports are free ones unless given. */
export function runServer(...flags: string[]): ServerRun {
  const ports = ["http", "grpc", "metrics"]
    .filter((name) => !flags.some((flag) => flag.startsWith(`--${name}-port`)))
    .map((name) => `--${name}-port=0`);
  const child = new Deno.Command(Deno.execPath(), {
    args: ["run", "-A", `${PROJECT}mod.ts`, ...ports, ...flags],
    stdin: "null",
    stdout: "piped",
    stderr: "piped",
    env: { NO_COLOR: "1" },
  }).spawn();
  let [stdout, stderr] = ["", ""];
  let exit: number | undefined;
  const collected = Promise.all([
    collect(child.stdout, (text) => stdout += text),
    collect(child.stderr, (text) => stderr += text),
  ]);
  const ended = child.status.then((status) => exit = status.code);
  const exitCode = async (limitMs = 20_000): Promise<number | undefined> => {
    await waitUntil(() => exit !== undefined, limitMs);
    if (exit !== undefined) await collected;
    return exit;
  };
  return {
    pid: child.pid,
    stdout: () => stdout,
    stderr: () => stderr,
    exitCode,
    kill: (signal) => child.kill(signal),
    address: async (service) => {
      const pattern = new RegExp(`^  ${service} +(\\S+)$`, "m");
      const found = await waitUntil(() => pattern.test(stdout) || exit !== undefined, 20_000);
      const address = pattern.exec(stdout)?.[1];
      if (!found || address === undefined) {
        throw new Error(`Server did not start:\n${stdout}\n${stderr}`);
      }
      return address;
    },
    [Symbol.asyncDispose]: async () => {
      if (exit === undefined) child.kill("SIGKILL");
      await ended;
      await collected;
    },
  };
}

async function collect(
  stream: ReadableStream<Uint8Array<ArrayBuffer>>,
  add: (text: string) => void,
): Promise<void> {
  for await (const text of stream.pipeThrough(new TextDecoderStream())) add(text);
}

/** A repository with one model `echo` of the identity backend; further models are configuration texts. */
export async function makeRepository(
  models: Readonly<Record<string, string>> = {},
): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await Deno.makeTempDir({ prefix: "nereid-cli-" });
  for (const [name, config] of Object.entries({ echo: ECHO, ...models })) {
    await Deno.mkdir(`${path}/${name}/1`, { recursive: true });
    await Deno.writeTextFile(`${path}/${name}/config.pbtxt`, config);
  }
  return {
    path,
    [Symbol.asyncDispose]: () => Deno.remove(path, { recursive: true }),
  };
}

const ECHO = `
backend: "identity"
max_batch_size: 0
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] } ]
`;
