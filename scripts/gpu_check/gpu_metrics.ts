import { join } from "node:path";
import { type CheckContext, denoCommand, runCommand, type StepOutcome } from "./step.ts";

/** Two programs round the same reading differently. */
const TOLERANCE = 0.02;
const CONFIG = `
backend: "identity"
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]
instance_group { kind: KIND_GPU }
`;

/** A GPU as `nvidia-smi` sees it; NaN = it does not tell. */
interface SmiRow {
  readonly uuid: string;
  readonly memoryTotalMiB: number;
  readonly powerLimitWatts: number;
}

/** Serves a model on every GPU and compares `/metrics` with `nvidia-smi`. */
export async function compareGpuMetrics(
  context: CheckContext,
  signal: AbortSignal,
): Promise<StepOutcome> {
  const rows = await readSmi(context, signal);
  if (typeof rows === "string") return { state: "skipped", detail: rows };
  const text = await serveAndRead(context, signal);
  const faults = rows.flatMap((row) => compare(row, text));
  if (faults.length > 0) return { state: "failed", detail: faults.join("; ") };
  return {
    state: "passed",
    detail: `memory, power limit and counters of ${rows.length} GPUs are those of nvidia-smi`,
    values: { gpus: rows },
  };
}

async function readSmi(
  { env }: CheckContext,
  signal: AbortSignal,
): Promise<readonly SmiRow[] | string> {
  const query = "--query-gpu=uuid,memory.total,power.limit";
  const command = ["nvidia-smi", query, "--format=csv,noheader,nounits"];
  try {
    const { code, stdout, stderr } = await runCommand(command, env, signal);
    if (code !== 0) return `nvidia-smi gives ${code}: ${(stderr || stdout).trim().slice(0, 200)}`;
    return stdout.trim().split("\n").map((line) => {
      const [uuid = "", memory, power] = line.split(",").map((part) => part.trim());
      return { uuid, memoryTotalMiB: Number(memory), powerLimitWatts: Number(power) };
    });
  } catch (reason) {
    return `nvidia-smi cannot be run: ${(reason as Error).message}`;
  }
}

/** What `/metrics` says after one request to a model on all GPUs. */
async function serveAndRead({ env, folder }: CheckContext, signal: AbortSignal): Promise<string> {
  const repository = join(folder, "metrics_models");
  await Deno.mkdir(join(repository, "on_gpu", "1"), { recursive: true });
  await Deno.writeTextFile(join(repository, "on_gpu", "config.pbtxt"), CONFIG);
  const [program, ...args] = denoCommand(
    ...["run", "-A", "mod.ts", `--model-repository=${repository}`, "--allow-grpc=false"],
    ...["--http-address=127.0.0.1", "--http-port=0", "--metrics-port=0"],
  );
  const server = new Deno.Command(program!, {
    args,
    cwd: new URL("../../", import.meta.url).pathname,
    env: { ...env },
    stdin: "null",
    stdout: "piped",
    stderr: "null",
    signal,
  }).spawn();
  try {
    const [http, metricsAddress] = await readAddresses(server.stdout);
    const data = [1, 2, 3, 4];
    const response = await fetch(`${http}/v2/models/on_gpu/infer`, {
      method: "POST",
      body: JSON.stringify({ inputs: [{ name: "INPUT0", datatype: "FP32", shape: [4], data }] }),
      signal,
    });
    if (!response.ok) throw new Error(`infer on a GPU: ${await response.text()}`);
    await response.body?.cancel();
    const metrics = await fetch(`${metricsAddress}/metrics`, { signal });
    return await metrics.text();
  } finally {
    server.kill("SIGTERM");
    await server.status;
  }
}

/** Addresses of HTTP and of the metrics in the report of a server that has started. @throws Error when it ends. */
function readAddresses(stdout: ReadableStream<Uint8Array<ArrayBuffer>>): Promise<string[]> {
  const { promise, resolve, reject } = Promise.withResolvers<string[]>();
  // Read to its end, since a server that nobody reads from would wait.
  const readAll = async (): Promise<void> => {
    let text = "";
    for await (const part of stdout.pipeThrough(new TextDecoderStream())) {
      text += part;
      const found = ["HTTP", "Metrics"].map((name) =>
        new RegExp(`^ {2}${name} +(\\S+)$`, "m").exec(text)?.[1] ?? ""
      );
      if (found.every((address) => address !== "")) resolve(found);
    }
    reject(new Error(`The server did not start: ${text.slice(-500)}`));
  };
  readAll().catch(reject);
  return promise;
}

function compare({ uuid, memoryTotalMiB, powerLimitWatts }: SmiRow, text: string): string[] {
  const read = (name: string) =>
    Number(new RegExp(`^${name}\\{gpu_uuid="${uuid}"\\} (\\S+)$`, "m").exec(text)?.[1] ?? NaN);
  const pairs: readonly (readonly [string, number, number])[] = [
    ["memory", read("nv_gpu_memory_total_bytes"), memoryTotalMiB * 2 ** 20],
    ["power limit", read("nv_gpu_power_limit"), powerLimitWatts],
  ];
  const faults = pairs
    .filter(([, ours, theirs]) =>
      !Number.isNaN(theirs) && !(Math.abs(ours - theirs) <= TOLERANCE * theirs)
    )
    .map(([what, ours, theirs]) => `${uuid}: ${what} is ${ours}, nvidia-smi says ${theirs}`);
  if (text.includes(`nv_inference_request_success{gpu_uuid="${uuid}",model="on_gpu"`)) {
    return faults;
  }
  return [...faults, `${uuid}: no nv_inference_request_success of the model there`];
}
