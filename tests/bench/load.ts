/**
 * A load generator, a process of its own: `deno run -A tests/bench/load.ts JOB` with a LoadJob as JSON.
 * Prints `begin` and `end` around the measured time and then the result as JSON.
 */
import { startGrpcLoad } from "./grpc_load.ts";
import { startHttpLoad } from "./http_load.ts";
import { type LoadJob, Meter } from "./load_job.ts";

function print(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(line + "\n"));
}

if (import.meta.main) {
  const job = JSON.parse(Deno.args[0]!) as LoadJob;
  const body = job.bodyFile === "" ? new Uint8Array() : await Deno.readFile(job.bodyFile);
  const meter = new Meter(job);
  if (job.way.startsWith("grpc")) await startGrpcLoad(job, body, meter);
  else startHttpLoad(job, body, meter);
  print(JSON.stringify(await meter.run(print)));
  Deno.exit(0);
}
