/** Builds the stand-ins for tests in other languages: prints their folder, or why there are none on standard error. */
import { buildStandIns, whyNoStandIns } from "./stand_ins.ts";

if (import.meta.main) {
  const reason = whyNoStandIns();
  if (reason !== undefined) {
    await Deno.stderr.write(new TextEncoder().encode(reason));
    Deno.exit(1);
  }
  const { folder } = await buildStandIns();
  await Deno.stdout.write(new TextEncoder().encode(folder));
}
