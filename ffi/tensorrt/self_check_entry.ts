/**
 * The process in which a libnvinfer is tried before the server uses it: `deno run self_check_entry.ts ORDER`, the order
 * as JSON. Writes the stages, then `failed` with the reason, if any; a crash ends it behind the stage it was in.
 */
import { checkTensorRt, type SelfCheckOrder } from "./self_check.ts";

function write(line: string): void {
  Deno.stdout.writeSync(new TextEncoder().encode(line + "\n"));
}

if (import.meta.main) {
  try {
    await checkTensorRt(JSON.parse(Deno.args[0] ?? "{}") as SelfCheckOrder, write);
  } catch (error) {
    write(`failed ${JSON.stringify(error instanceof Error ? error.message : String(error))}`);
  }
  // Native threads of the library must not keep the process.
  Deno.exit(0);
}
