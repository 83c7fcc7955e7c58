import { join } from "node:path";
import { MEGABYTES } from "./bench_models.ts";
import { measure, type MeasureOptions, type Target } from "./measure.ts";
import { rampValues, type RequestParts, writeRequest } from "./payload.ts";
import { formatCell, formatGoal, print } from "./report.ts";

/** Most that a tensor in shared memory may cost of the same in an HTTP body. */
const LIMIT = 0.2;

/** Compares a tensor of 10 MB, there and back, in HTTP bodies and in shared memory. */
export async function compareSharedMemory(
  ours: Target,
  directory: string,
  options: MeasureOptions,
): Promise<void> {
  const { title, model } = MEGABYTES;
  const key = `nereid_bench_${Deno.pid}`;
  const file = join("/dev/shm", key);
  const bytes = new Uint8Array(rampValues(MEGABYTES.shape).buffer);
  try {
    await Deno.writeFile(file, bytes);
    await Deno.truncate(file, 2 * bytes.length);
    await register(ours, key, 2 * bytes.length);
    const plain = await writeRequest(MEGABYTES, "http-binary", directory);
    const shared = await writeSharedRequest(directory, bytes.length);
    const http = await measure(ours, plain, 1, options);
    print(formatCell(`ours  ${model} http-binary 1`, http, []));
    const memory = await measure(ours, shared, 1, options);
    const ratios: [string, number][] = [
      ["x HTTP time", memory.p50Us / http.p50Us],
      ["x HTTP CPU", memory.cpuUs / http.cpuUs],
    ];
    print(formatCell(`ours  ${model} shared memory 1`, memory, ratios));
    const ratio = memory.p50Us / http.p50Us;
    const goal = `${title}, one at a time: time in shared memory of the time over HTTP`;
    print(formatGoal(goal, ratio, `<= ${LIMIT}`, ratio <= LIMIT));
  } finally {
    await Deno.remove(file).catch(() => {});
  }
}

async function register({ httpPort }: Target, key: string, byteSize: number): Promise<void> {
  const address = `http://127.0.0.1:${httpPort}/v2/systemsharedmemory/region/bench/register`;
  const body = JSON.stringify({ key: `/${key}`, byte_size: byteSize });
  const response = await fetch(address, { method: "POST", body });
  const text = await response.text();
  if (!response.ok) throw new Error(`Cannot register shared memory: ${text}`);
}

/** Input in the first half of the region, output in the second. */
async function writeSharedRequest(directory: string, byteSize: number): Promise<RequestParts> {
  const { model, inputName, outputName, shape } = MEGABYTES;
  const place = { "shared_memory_region": "bench", "shared_memory_byte_size": byteSize };
  const bodyFile = join(directory, `${model}-shared.json`);
  await Deno.writeTextFile(
    bodyFile,
    JSON.stringify({
      inputs: [{ name: inputName, datatype: "FP32", shape, parameters: place }],
      outputs: [{ name: outputName, parameters: { ...place, shared_memory_offset: byteSize } }],
    }),
  );
  return { way: "http-json", path: `/v2/models/${model}/infer`, headers: [], bodyFile };
}
