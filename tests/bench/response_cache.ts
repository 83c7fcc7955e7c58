import { dirname, join } from "node:path";
import { modelFile, REAL } from "./bench_models.ts";
import { type Cell, measure, type MeasureOptions, type Target } from "./measure.ts";
import { type Payload, writeRequest } from "./payload.ts";
import { formatCell, formatGoal, print } from "./report.ts";

/** The answers of all payloads fit. */
const CACHE_FLAGS: readonly string[] = ["--cache-config=local,size=16777216"];

const ENABLED = "response_cache { enable: true }\n";
const WAYS = ["http-binary", "grpc"] as const;

/** Writes every payload's model a second time, with the response cache. */
export async function writeCachedModels(
  repository: string,
  payloads: readonly Payload[],
): Promise<void> {
  for (const payload of payloads) {
    const [from, to] = [payload, cached(payload)].map((each) => modelFile(repository, each));
    await Deno.mkdir(dirname(to!), { recursive: true });
    await Deno.copyFile(from!, to!);
    const config = await Deno.readTextFile(configFile(from!));
    await Deno.writeTextFile(configFile(to!), config + ENABLED);
  }
}

function configFile(model: string): string {
  return join(dirname(model), "..", "config.pbtxt");
}

function cached(payload: Payload): Payload {
  return { ...payload, model: `${payload.model}_cached` };
}

/** Measures requests that are answered from the cache next to the same ones that run, on a server of its own. */
export async function compareCache(
  payloads: readonly Payload[],
  how: {
    readonly directory: string;
    readonly options: MeasureOptions;
    readonly start: (flags: readonly string[]) => Promise<Target & AsyncDisposable>;
  },
): Promise<void> {
  const { directory, options } = how;
  await using target = await how.start(CACHE_FLAGS);
  for (const payload of payloads) {
    for (const way of WAYS) {
      const cells: Cell[] = [];
      for (const [each, title] of [[payload, "runs"], [cached(payload), "cache hit"]] as const) {
        const request = await writeRequest(each, way, directory);
        const cell = await measure(target, request, 8, options);
        cells.push(cell);
        print(formatCell(`ours  ${each.model} ${way}, ${title}`, cell, []));
      }
      const [runs, hit] = cells;
      if (payload !== REAL) continue;
      const title = `${payload.title}, ${way}: rate of cache hits to that of executions`;
      const ratio = hit!.perSecond / runs!.perSecond;
      print(formatGoal(title, ratio, ">= 2", ratio >= 2));
    }
  }
}
